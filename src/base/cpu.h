/* cpu.h - what the processor can do, asked once. */
#ifndef PEN_BASE_CPU_H
#define PEN_BASE_CPU_H

/* AVX2 together with FMA and F16C. */
#define PEN__CPU_AVX2 1U

/* Flags in use: detected, less what PENSTOCK_CPU=scalar switches off. */
unsigned pen__cpu_flags(void);
/* Tests: use only these flags (and those the processor has); ~0U undoes it. */
void pen__cpu_mask(unsigned mask);

#endif
