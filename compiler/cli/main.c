/* main.c: the program `fcpc`: reads the command line, calls the command, reports its error, and returns its exit
 * status. */
#include "compiler/cli/cmd.h"

int main(int argc, char **argv) {
    cmd_input input = {0};
    const int status = cmd_main(argc, argv, &input);
    cmd_input_free(&input);
    return status;
}
