" Vim syntax of fcp programs. Made by grammar/editors/generate.c (make editors); do not edit.
if exists('b:current_syntax')
  finish
endif

syntax keyword fcpControl if then else where
syntax keyword fcpDeclaration model cluster batch mask plan score field table
syntax keyword fcpOperator and or not
syntax keyword fcpBoolean true false
syntax match fcpVariable /\<\%(q\|k\|n\|h\|s\|sequences\|heads\|kv_heads\|queries\|keys\|real\)\>/
syntax match fcpFunction /\<\%(min\|max\|abs\|exact\|run\|rect\|slices\|exp\|exp2\|log\|log2\|tanh\|tanh_approx\|sqrt\|floor\|file\|lognormal\|given\|cumulative\|dense\|pipeline\|halo\|scan\)\ze\s*(/
syntax match fcpKey /\<\%(heads\|kv_heads\|head_dim\|value_dim\|values\|dtype\|scale\|linear\|linear_memory\|nodes\|gpus\|gpu\|intra\|inter\|latency\|flops\|memory\|memory_bandwidth\|fabric\|oversubscription\|lengths\|tick\|documents\|align\|mask\|layers\|score\|sink\|block\|strategy\|passes\|layout\|tokens\|relay\|margin\|deterministic\|wire\|lse_gradient\)\ze\s*=[^=]/
syntax match fcpOperator /[-+*\/%<>]\|[<>=!]=\|\.\./
syntax match fcpNumber /\<\d\+[KMG]\=\>\|\<\d\+\.\d\+\%([eE][-+]\=\d\+\)\=/
syntax match fcpUnit #\%(\d\s*\)\@<=\%(B/s\|kB/s\|MB/s\|GB/s\|TB/s\|GFLOP/s\|TFLOP/s\|PFLOP/s\|B\|kB\|MB\|GB\|TB\|ns\|us\|ms\|s\)\>#
syntax region fcpString start=/"/ skip=/\\./ end=/"/ oneline
syntax match fcpComment /#.*$/

highlight default link fcpControl Conditional
highlight default link fcpDeclaration Structure
highlight default link fcpOperator Operator
highlight default link fcpBoolean Boolean
highlight default link fcpVariable Identifier
highlight default link fcpFunction Function
highlight default link fcpKey Label
highlight default link fcpNumber Number
highlight default link fcpUnit Type
highlight default link fcpString String
highlight default link fcpComment Comment

let b:current_syntax = 'fcp'
