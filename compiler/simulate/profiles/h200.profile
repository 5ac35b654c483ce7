# NVIDIA H200 SXM, bf16. The constants are cuDNN's; our own kernels have not run on one yet.
gpu h200
sms                          132     "NVIDIA H200 data sheet"
small                          3 us  "assumed"
latency.local                  2 us  "assumed: half of the network's"
channel                      8.4 GB/s  "assumed: FCP gives 6 multiprocessors to a port of 50 GB/s"
forward.128.full           11.98 ns  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 0.9 %"
forward.128.partial        27.78 ns  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 0.9 %"
forward.128.row             7.68 ns  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 0.9 %"
forward.128.launch          13.5 us  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 0.9 %"
backward.128.full          35.01 ns  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 4.1 %"
backward.128.partial        88.4 ns  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 4.1 %"
backward.128.row           32.57 ns  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 4.1 %"
backward.128.launch         73.9 us  "fitted to cuDNN 9.19 on H200, 64:8 heads, 2K to 32K, causal and full: 10 points, errors at most 4.1 %"
