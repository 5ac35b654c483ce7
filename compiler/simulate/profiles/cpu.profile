# One worker of the host backend.
gpu cpu
sms                            1     "a worker is one thread"
small                          5 us  "assumed"
forward.128.full           83.89 us  "assumed: 100 GFLOP/s at any head_dim; fcpc calibrate measures it"
forward.128.partial        109.1 us  "assumed: 1.3 of full"
forward.128.row                1 us  "assumed"
forward.128.launch            20 us  "assumed"
backward.128.full          209.7 us  "assumed: 100 GFLOP/s at any head_dim; fcpc calibrate measures it"
backward.128.partial       272.6 us  "assumed: 1.3 of full"
backward.128.row               1 us  "assumed"
backward.128.launch           20 us  "assumed"
