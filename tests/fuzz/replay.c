/* replay.c - run a fuzz target over given files once, without a fuzzer: replay_<target> FILE...
 *
 * For compilers without libFuzzer, and for the test suite, which runs all seeds this way. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return -1;
    long len = ftell(file);
    rewind(file);
    uint8_t *data = len >= 0 ? malloc((size_t)len + 1) : NULL;
    int rc = data && fread(data, 1, (size_t)len, file) == (size_t)len ? 0 : -1;
    fclose(file);
    if (rc == 0)
        LLVMFuzzerTestOneInput(data, (size_t)len);
    free(data);
    return rc;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (run_file(argv[i]) != 0) {
            fprintf(stderr, "cannot read %s\n", argv[i]);
            return 1;
        }
    printf("%d inputs\n", argc - 1);
    return 0;
}
