/* Lends cores of this node for some seconds, and takes them back: a whole program around eslurm_cooperate.h.
 *
 *     cc -o lender lender.c            (C99 and POSIX)
 *     essubmit -c 4 --cooperate=full --wrap './lender 2 60'
 *
 * Exit code: 0, or 1 when the agent refuses.
 */
#define _POSIX_C_SOURCE 200809L
#include "eslurm_cooperate.h"

static int say(struct eslurm_cores *cores, int idle, long remaining_s, int flags, int wait_s)
{
    if (eslurm_report(cores, idle, remaining_s, flags, wait_s) != 0) {
        fprintf(stderr, "%s\n", cores->error);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct eslurm_cores cores = {.level = "off"};
    int idle = argc > 1 ? atoi(argv[1]) : 1, seconds = argc > 2 ? atoi(argv[2]) : 10, left;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (say(&cores, 0, 100, 0, 0))
        return 1;
    printf("level %s, %d cores, %d excluded\n", cores.level, cores.cores, cores.excluded);
    for (left = seconds; left > 0; left--) {
        /* Here a real application computes on the cores that it keeps. */
        if (say(&cores, idle, left * (cores.cores - idle), 0, 0))
            return 1;
        if (cores.asked > 0) {
            printf("asked for %d more: rejected\n", cores.asked);
            if (say(&cores, -1, -1, ESLURM_REJECT, 0))
                return 1;
        }
        sleep(1);
    }
    if (say(&cores, 0, 0, 0, 60))
        return 1;
    printf("%d excluded\n", cores.excluded);
    return 0;
}
