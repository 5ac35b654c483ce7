# NVIDIA B200, bf16. Our kernels use mma.sync there and will be slower than this.
gpu b200
sms                          148     "NVIDIA B200 data sheet"
small                          3 us  "assumed"
latency.local                  2 us  "assumed: half of the network's"
channel                      8.4 GB/s  "assumed: FCP gives 6 multiprocessors to a port of 50 GB/s"
forward.128.full           5.266 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
forward.128.partial        12.21 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
forward.128.row            3.376 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
forward.128.launch          13.5 us  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
backward.128.full          15.39 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
backward.128.partial       38.86 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
backward.128.row           14.32 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
backward.128.launch         73.9 us  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 2250"
