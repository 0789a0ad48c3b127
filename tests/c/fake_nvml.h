/* fake_nvml.h - what the test tells the fake driver, and what the fake counts. */
#ifndef PEN_TESTS_FAKE_NVML_H
#define PEN_TESTS_FAKE_NVML_H

typedef struct fake_nvml_state {
    unsigned n_gpus;
    int fails_init;
    int lost_gpu; /* its index plus one; 0: none */
    unsigned busy_percent;
    unsigned long long energy_mj;
    int n_init, n_shutdown;
} fake_nvml_state;

#endif
