"""How the REST API of a Slurm cluster is reached, as a pydantic model."""

from shlex import split

from pydantic import Field, model_validator

from allotment.wire.amiss import Amiss
from allotment.wire.fields import Line, NameOrNone, Path, Word
from allotment.wire.job_shape import Shape


class RestShape(Shape):
    """Slurm's REST API: where slurmrestd answers, and where a token of Slurm comes from."""

    url: Word = Field(default="", examples=["http://slurm-head:6820"])
    socket: Path = Field(default="", examples=["/run/slurmrestd/slurmrestd.socket"])
    token: Path = Field(default="", examples=["/etc/allotment/slurm.token"])
    token_command: Line = Field(default="", examples=["scontrol token lifespan=3600"])
    user: NameOrNone = Field(default="", examples=["slurm"])

    @model_validator(mode="after")
    def _one_of_each(self) -> "RestShape":
        if bool(self.url) == bool(self.socket):
            wrong = "is given beside `url`" if self.url else "is missing, and so is `url`"
            raise Amiss(wrong, "say where slurmrestd listens, once", at=("socket",))
        if self.url and not self.url.startswith(("http://", "https://")):
            raise Amiss("is not a URL", "http://slurm-head:6820", at=("url",))
        for key in ("socket", "token"):
            if (path := getattr(self, key)) and not path.startswith("/"):
                raise Amiss(f"{path} is not an absolute path", "begin it with /", at=(key,))
        try:
            split(self.token_command)
        except ValueError as error:
            raise Amiss(str(error).lower(), at=("token_command",)) from error
        if self.token and self.token_command:
            raise Amiss("is given beside `token`", "one is enough", at=("token_command",))
        if self.url and not (self.token or self.token_command):
            hint = "a file, or token_command: scontrol token lifespan=3600"
            raise Amiss("is missing: over a URL slurmrestd wants one", hint, at=("token",))
        return self
