# Huawei Ascend 910C, bf16.
gpu 910c
sms                           48     "assumed: 2 dies of 24 cube cores"
small                          5 us  "assumed"
latency.local                  2 us  "assumed"
forward.128.full           15.76 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
forward.128.partial        36.54 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
forward.128.row             10.1 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
forward.128.launch          13.5 us  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
backward.128.full          46.04 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
backward.128.partial       116.3 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
backward.128.row           42.83 ns  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
backward.128.launch         73.9 us  "assumed: H200's times by the ratio of peak FLOP/s, 989 / 752"
