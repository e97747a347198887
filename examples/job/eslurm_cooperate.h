/* Cooperation of an application's scheduler with eslurm, in one header: C99 and POSIX, no library.
 *
 *     struct eslurm_cores cores;
 *     eslurm_report(&cores, 2, 340, 0, 0);     two cores of this node are idle, work for 340 s of one core is left
 *     if (cores.asked > 0)                      another job waits for more:
 *         eslurm_report(&cores, 2 + cores.asked, 300, 0, 0);      grant it (the application chooses which),
 *         eslurm_report(&cores, 2, 300, ESLURM_REJECT, 0);        or reject it
 *     eslurm_report(&cores, 0, 200, 0, 60);    take all back: returns when they are, or after 60 s
 *
 * After each call the application leaves `cores.excluded` cores of this node alone; it may use the others. A report costs a
 * round trip to the agent of the node (tens of microseconds); call it between chunks of work. Nothing is ever sent but the
 * answer. Outside of a job, and without `essubmit --cooperate`, every call succeeds with level "off" and excludes nothing.
 *
 * Several processes on a node speak each for itself: set `eslurm_worker` to 0, 1, 2, ... in them. Their idle cores add up.
 * Each call opens a connection of its own, so it may be made from any thread, and after a restart of the agent.
 */
#ifndef ESLURM_COOPERATE_H
#define ESLURM_COOPERATE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ESLURM_REJECT = 1, ESLURM_PATIENCE_S = 30, ESLURM_ANSWER_BYTES = 4096 };

struct eslurm_cores {
    char level[8];      /* off, report or full */
    int cores;          /* of the job on this node */
    int idle;           /* of all its processes there */
    int excluded;       /* to leave to others */
    int asked;          /* further ones that a waiting job would use */
    char error[256];    /* why a call failed */
};

static int eslurm_worker = 0;

static int eslurm_field_(const char *answer, const char *key, char *value, size_t size)
{
    size_t length = strlen(key);
    const char *at = answer;
    while (at && *at) {
        const char *end = strchr(at, '\n');
        if (end && strncmp(at, key, length) == 0 && at[length] == '=') {
            size_t count = (size_t)(end - at) - length - 1;
            if (count >= size)
                count = size - 1;
            memcpy(value, at + length + 1, count);
            value[count] = '\0';
            return 1;
        }
        at = end ? end + 1 : NULL;
    }
    return 0;
}

static int eslurm_number_(const char *answer, const char *key)
{
    char text[24];
    return eslurm_field_(answer, key, text, sizeof text) ? (int)strtol(text, NULL, 10) : 0;
}

/* Sends one line and reads the answer up to `ok` or `error`. Returns its length, or -1 with errno. */
static long eslurm_ask_(const char *path, const char *line, char *answer, size_t size, int patience_s)
{
    struct sockaddr_un address;
    struct timeval patience;
    size_t length = strlen(line), sent = 0, got = 0;
    int agent = socket(AF_UNIX, SOCK_STREAM, 0), failed = 0;
    if (agent < 0)
        return -1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    patience.tv_sec = patience_s;
    patience.tv_usec = 0;
    setsockopt(agent, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(agent, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (strlen(path) >= sizeof address.sun_path) {
        close(agent);
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    failed = connect(agent, (struct sockaddr *)&address, sizeof address) != 0;
    while (!failed && sent < length) {
        ssize_t count = send(agent, line + sent, length - sent, MSG_NOSIGNAL);
        if (count > 0)
            sent += (size_t)count;
        else if (count == 0 || errno != EINTR)
            failed = 1;
    }
    while (!failed && got + 1 < size) {
        ssize_t count = recv(agent, answer + got, size - 1 - got, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            failed = 1;
            errno = count == 0 ? ECONNRESET : errno;
            break;
        }
        got += (size_t)count;
        answer[got] = '\0';
        if (answer[got - 1] == '\n' && (strncmp(answer, "error ", 6) == 0 || strcmp(answer, "ok\n") == 0 ||
                                         (got > 4 && strcmp(answer + got - 4, "\nok\n") == 0)))
            break;
    }
    close(agent);
    return failed ? -1 : (long)got;
}

/* Reports this process's idle cores of this node (-1: as before) and the work left in seconds of one core (-1: not said).
 * `flags` is 0 or ESLURM_REJECT. With `wait_s` > 0 a call that takes cores back returns when they are, or after so long.
 * Returns 0, or -1 with a reason in `found->error`; the application then goes on as after its last successful call.
 */
static int eslurm_report(struct eslurm_cores *found, int idle, long remaining_s, int flags, int wait_s)
{
    const char *path = getenv("ESLURM_JOB_SOCKET"), *job = getenv("ESLURM_JOB_ID");
    const char *node = getenv("ESLURM_NODENAME");
    char line[512], words[5][96], answer[ESLURM_ANSWER_BYTES];
    long length;
    found->error[0] = '\0';
    if (!path || !*path || !job || !*job) {
        memset(found, 0, sizeof *found);
        strcpy(found->level, "off");
        return 0;
    }
    memset(words, 0, sizeof words);
    if (node && *node)
        snprintf(words[0], sizeof words[0], " node=%.80s", node);
    if (idle >= 0)
        snprintf(words[1], sizeof words[1], " idle=%d", idle);
    if (remaining_s >= 0)
        snprintf(words[2], sizeof words[2], " remaining=%ld", remaining_s);
    if (wait_s > 0)
        snprintf(words[3], sizeof words[3], " wait=%d", wait_s);
    snprintf(line, sizeof line, "report job=%.10s worker=%d%s%s%s%s%s\n", job, eslurm_worker, words[0], words[1], words[2],
             words[3], flags & ESLURM_REJECT ? " reject" : "");
    length = eslurm_ask_(path, line, answer, sizeof answer, ESLURM_PATIENCE_S + (wait_s > 0 ? wait_s : 0));
    if (length < 0) {
        snprintf(found->error, sizeof found->error, "the agent of this node cannot be asked: %s", strerror(errno));
        return -1;
    }
    if (strncmp(answer, "error ", 6) == 0) {
        snprintf(found->error, sizeof found->error, "%.*s", (int)strcspn(answer + 6, "\n"), answer + 6);
        return -1;
    }
    eslurm_field_(answer, "level", found->level, sizeof found->level);
    found->cores = eslurm_number_(answer, "cores");
    found->idle = eslurm_number_(answer, "idle");
    found->excluded = eslurm_number_(answer, "excluded");
    found->asked = eslurm_number_(answer, "asked");
    return 0;
}

#endif
