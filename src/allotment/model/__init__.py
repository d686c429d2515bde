"""The words of Allotment: values and rules that are true everywhere."""
