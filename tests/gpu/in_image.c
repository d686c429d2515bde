/* A job for an image that has a C library and nothing of CUDA: the driver comes from the host.

       in_image STEPS PAUSE_MS MEBIBYTES

   Each step makes the next number of a linear congruential generator out of each of many; the
   last line is the sum of them all, modulo 2^32. Ends with 3 where the driver refuses. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const PTX =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry next(.param .u64 numbers)\n"
    "{\n"
    "  .reg .b32 %r<5>;\n"
    "  .reg .b64 %d<3>;\n"
    "  ld.param.u64 %d1, [numbers];\n"
    "  cvta.to.global.u64 %d1, %d1;\n"
    "  mov.u32 %r1, %ctaid.x;\n"
    "  mov.u32 %r2, %ntid.x;\n"
    "  mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r1, %r1, %r2, %r3;\n"
    "  mul.wide.u32 %d2, %r1, 4;\n"
    "  add.u64 %d1, %d1, %d2;\n"
    "  ld.global.u32 %r4, [%d1];\n"
    "  mad.lo.u32 %r4, %r4, 1664525, 1013904223;\n"
    "  st.global.u32 [%d1], %r4;\n"
    "  ret;\n"
    "}\n";

#define CALL(name, ...)                                          \
    do {                                                         \
        int (*function)() = (int (*)())dlsym(driver, #name);     \
        int error = function ? function(__VA_ARGS__) : -1;       \
        if (error) {                                             \
            printf("%s: CUDA error %d\n", #name, error);         \
            return 3;                                            \
        }                                                        \
    } while (0)

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int steps = atoi(argv[1]), pause_us = atoi(argv[2]) * 1000;
    size_t bytes = (size_t)atoi(argv[3]) << 20, count = bytes / sizeof(uint32_t);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        printf("%s\n", dlerror());
        return 3;
    }
    int device;
    char name[100];
    uint64_t memory;
    void *context, *module, *next;
    uint32_t *numbers = malloc(bytes), sum = 0;
    for (size_t i = 0; i < count; i++)
        numbers[i] = (uint32_t)i;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDeviceGetName, name, (int)sizeof name, device);
    printf("%s\n", name);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, PTX);
    CALL(cuModuleGetFunction, &next, module, "next");
    CALL(cuMemAlloc_v2, &memory, bytes);
    CALL(cuMemcpyHtoD_v2, memory, numbers, bytes);
    for (int step = 1; step <= steps; step++) {
        void *arguments[] = {&memory};
        CALL(cuLaunchKernel, next, (unsigned)(count / 256), 1, 1, 256, 1, 1, 0, (void *)0,
             arguments, (void *)0);
        CALL(cuCtxSynchronize);
        if (step % 50 == 0)
            printf("step %d\n", step);
        usleep(pause_us);
    }
    CALL(cuMemcpyDtoH_v2, numbers, memory, bytes);
    for (size_t i = 0; i < count; i++)
        sum += numbers[i];
    printf("end %u\n", sum);
    return 0;
}
