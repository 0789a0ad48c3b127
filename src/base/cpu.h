/* cpu.h - what the processor can do, asked once. */
#ifndef PEN_BASE_CPU_H
#define PEN_BASE_CPU_H

/* AVX2 together with FMA and F16C. */
#define PEN__CPU_AVX2 1U
/* AVX-512 with BW, VL, VNNI and VBMI: Ice Lake, Zen 4 and later.  Implies the above. */
#define PEN__CPU_AVX512 2U

/* Flags in use: detected, less what PENSTOCK_CPU (scalar, avx2) switches off. */
unsigned pen__cpu_flags(void);
/* Tests: use only these flags (and those the processor has); ~0U undoes it. */
void pen__cpu_mask(unsigned mask);

#endif
