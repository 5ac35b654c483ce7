# One worker of the host backend, float32, on a virtual machine of two cores at 2.5 GHz. `make bench ROWS=calibrate` measures yours.
gpu cpu
sms                            1     "a worker is one thread"
small                          5 us  "assumed"
queues                         1     "the host's transports do a launch as a whole"
forward.128.full             91.369 us  "fitted to 9 rows, errors at most 14.0 %"
forward.128.partial         148.286 us  "fitted to 9 rows, errors at most 14.0 %"
forward.128.row                   0 ps  "fitted to 9 rows, errors at most 14.0 %"
forward.128.launch         1041.768 us  "fitted to 9 rows, errors at most 14.0 %"
backward.128.full           208.142 us  "fitted to 9 rows, errors at most 6.1 %"
backward.128.partial        349.376 us  "fitted to 9 rows, errors at most 6.1 %"
backward.128.row             85.089 us  "fitted to 9 rows, errors at most 6.1 %"
backward.128.launch               0 ps  "fitted to 9 rows, errors at most 6.1 %"
