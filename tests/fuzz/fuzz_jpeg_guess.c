/* fuzz_jpeg_guess.c - libFuzzer target for finding marks at guessed places.
 *
 * The input is a JPEG file.  Pieces are cut as small as can be, so that small inputs have
 * many; what is found must be what a scan from the file's beginning finds, for the scalar and
 * the vector twin.
 */
#include "base/cpu.h"
#include "guess_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX_PIXELS = 1 << 18 };
    static guess_bench *b;
    pen__jpeg_frame frame;
    if (!b)
        b = guess_bench_new();
    if (!b || size == 0 || !pen__jpeg_frame_read(&frame, data, size) ||
        (int64_t)frame.width * frame.height > MAX_PIXELS)
        return 0;
    int32_t n_rows = (frame.height + 8 * frame.mcu_v - 1) / (8 * frame.mcu_v);
    uint32_t min_piece = 4 + data[size - 1] % 61;
    int32_t step = 1 + data[size - 1] % 5, some = 1 + data[size / 2] % n_rows;
    if (!guess_is_true(b, &frame, data, size, step, min_piece, n_rows, NULL) ||
        !guess_is_true(b, &frame, data, size, step, min_piece, some, NULL))
        abort();
#if defined(__x86_64__)
    if (pen__cpu_flags() & PEN__CPU_AVX512 &&
        (!guess_is_true(b, &frame, data, size, step, min_piece, n_rows, pen__jpeg_count_avx512) ||
         !guess_is_true(b, &frame, data, size, step, min_piece, some, pen__jpeg_count_avx512)))
        abort();
#endif
    return 0;
}
