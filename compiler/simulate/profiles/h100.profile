# NVIDIA H100 SXM, bf16.
gpu h100
sms                          132     "NVIDIA H100 data sheet"
small                          3 us  "assumed"
latency.local                  2 us  "assumed: half of the network's"
channel                      8.4 GB/s  "assumed: FCP gives 6 multiprocessors to a port of 50 GB/s"
forward.128.full           11.98 ns  "assumed: H200's, as its multiprocessors and clocks are the same"
forward.128.partial        27.78 ns  "assumed: H200's, as its multiprocessors and clocks are the same"
forward.128.row             7.68 ns  "assumed: H200's, as its multiprocessors and clocks are the same"
forward.128.launch          13.5 us  "assumed: H200's, as its multiprocessors and clocks are the same"
backward.128.full          35.01 ns  "assumed: H200's, as its multiprocessors and clocks are the same"
backward.128.partial        88.4 ns  "assumed: H200's, as its multiprocessors and clocks are the same"
backward.128.row           32.57 ns  "assumed: H200's, as its multiprocessors and clocks are the same"
backward.128.launch         73.9 us  "assumed: H200's, as its multiprocessors and clocks are the same"
