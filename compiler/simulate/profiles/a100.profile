# NVIDIA A100 SXM, bf16.
gpu a100
sms                          108     "NVIDIA A100 data sheet"
small                          3 us  "assumed"
latency.local                  2 us  "assumed: half of the network's"
channel                      8.4 GB/s  "assumed: FCP gives 6 multiprocessors to a port of 50 GB/s"
forward.128.full           37.98 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
forward.128.partial        88.06 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
forward.128.row            24.34 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
forward.128.launch          13.5 us  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
backward.128.full            111 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
backward.128.partial       280.2 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
backward.128.row           103.2 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
backward.128.launch         73.9 us  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 312"
