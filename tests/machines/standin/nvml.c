/* nvml.c: a stand-in for NVML. It reports figures that no real device has, so that a test recognises them. */
struct nvml_device_;
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device_ **out);
int nvmlDeviceGetClockInfo(struct nvml_device_ *device, int which, unsigned *out);
int nvmlDeviceGetPowerUsage(struct nvml_device_ *device, unsigned *out);
int nvmlDeviceGetTemperature(struct nvml_device_ *device, int which, unsigned *out);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device_ *device, unsigned long long *out);

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device_ **out) {
    static char device;
    *out = (struct nvml_device_ *)(void *)&device;
    return index != 0;
}
int nvmlDeviceGetClockInfo(struct nvml_device_ *device, int which, unsigned *out) {
    (void)device;
    *out = 7;
    return which != 1;
}
int nvmlDeviceGetPowerUsage(struct nvml_device_ *device, unsigned *out) {
    (void)device;
    *out = 3000;
    return 0;
}
int nvmlDeviceGetTemperature(struct nvml_device_ *device, int which, unsigned *out) {
    (void)device;
    *out = 2;
    return which != 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device_ *device, unsigned long long *out) {
    (void)device;
    *out = 0x4;
    return 0;
}
