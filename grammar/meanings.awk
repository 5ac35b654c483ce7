# Makes a C array of the tables in LANGUAGE.md whose first column is one of those below: see meanings.h.

# A link becomes its text, an escaped bar a bar; and the whole a string of C.
function quoted(s,   at, text) {
    while (match(s, /\[[^][]*\]\([^)]*\)/)) {
        at = substr(s, RSTART, RLENGTH)
        text = substr(at, 2, index(at, "](") - 2)
        s = substr(s, 1, RSTART - 1) text substr(s, RSTART + RLENGTH)
    }
    gsub(/^ +| +$/, "", s)
    gsub(/\001/, "|", s)
    gsub(/\\/, "\\\\", s)
    gsub(/"/, "\\\"", s)
    return "\"" s "\""
}

BEGIN {
    print "#include \"grammar/meanings.h\""
    print "const meaning language_meanings[] = {"
}
/^## / {
    place = substr($0, 4)
    gsub(/`/, "", place)
}
!/^\|/ {
    table = 0
    next
}
{
    gsub(/\\\|/, "\001")
    columns = split($0, column, "|") - 2 # before the first bar and behind the last is nothing
    for (i = 2; i <= columns + 1; i++) gsub(/^ +| +$/, "", column[i])
}
!table {
    table = 1
    kind = column[2]
    known = kind ~ /^(key|parameter|strategy|name|function|layer|parameter of (`lognormal`|a layer)|mask|score of the prelude)$/
    next
}
!known || /^\|-/ { next }
{
    text = column[3]
    usual = columns > 2 ? column[4] : ""
    of = place
    if (kind == "parameter" || kind == "parameter of a layer") {
        of = column[3]
        text = column[4]
        usual = column[5]
    } else if (kind == "strategy") {
        text = "Tokens: " column[3] ". Work: " column[4] "."
        usual = ""
    }
    print "{" quoted(kind) ", " quoted(of) ", " quoted(column[2]) ", " quoted(text) ", " quoted(usual) "},"
    rows++
}
END {
    print "};"
    print "const unsigned language_meaning_count = sizeof language_meanings / sizeof *language_meanings;"
}
