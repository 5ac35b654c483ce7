/* Made by grammar/editors/generate.c (make editors); do not edit. */
'use strict';
CodeMirror.defineSimpleMode('fcp', {
  start: [
    {regex: /#.*/, token: 'comment'},
    {regex: /"(?:[^\\"]|\\.)*"?/, token: 'string'},
    {regex: new RegExp('(\\d+(?:\\.\\d+)?\\s*)(B/s|kB/s|MB/s|GB/s|TB/s|GFLOP/s|TFLOP/s|PFLOP/s|B|kB|MB|GB|TB|ns|us|ms|s)\\b'), token: ['number', 'type']},
    {regex: /(?:heads|kv_heads|head_dim|value_dim|values|dtype|scale|linear|linear_memory|nodes|gpus|gpu|intra|inter|latency|flops|memory|memory_bandwidth|fabric|oversubscription|lengths|tick|documents|align|mask|layers|score|sink|block|strategy|passes|layout|tokens|relay|margin|deterministic|wire|lse_gradient)(?=\s*=[^=])/, token: 'property'},
    {regex: /(?:if|then|else|where)\b/, token: 'keyword'},
    {regex: /(?:model|cluster|batch|mask|plan|score|field|table)\b/, token: 'def'},
    {regex: /(?:and|or|not)\b/, token: 'keyword'},
    {regex: /(?:true|false)\b/, token: 'atom'},
    {regex: /(?:min|max|abs|exact|run|rect|slices|exp|exp2|log|log2|tanh|tanh_approx|sqrt|floor|file|lognormal|given|cumulative|dense|pipeline|halo|scan)(?=\s*\()/, token: 'builtin'},
    {regex: /(?:q|k|n|h|s|sequences|heads|kv_heads|queries|keys|real)\b/, token: 'variable-2'},
    {regex: /\d+(?:\.\d+(?:[eE][-+]?\d+)?|[KMG]\b)?/, token: 'number'},
    {regex: /[A-Za-z_]\w*/, token: null},
    {regex: /[<>=!]=|\.\.|[-+*\/%<>]/, token: 'operator'},
  ],
  meta: {lineComment: '#'},
});
