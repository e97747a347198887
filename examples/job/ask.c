/* A running job asks for a change of itself, in plain C: one line out, lines back until `ok` or `error`.
 *
 *     cc -o ask ask.c                  (C99 and POSIX)
 *     ./ask finish-part part=1         gives back the nodes of part 1
 *     ./ask extend by=600 dry-run      would ten minutes more be granted?
 *
 * Each argument is one word of the line. The job's id is added, because a user may have several jobs on this node.
 * Exit code: 0 after `ok`, 1 after `error`, 2 when the agent of this node cannot be asked.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 4096 };

/* Appends a word, percent-encoding what a line may not have. Returns 0 when it does not fit. */
static int put_word(char *line, size_t *used, const char *word)
{
    const unsigned char *at = (const unsigned char *)word;
    for (; *at; at++) {
        int plain = *at > 0x20 && *at < 0x7f && *at != '%';
        if (*used + 5 > LINE_BYTES_MAX)
            return 0;
        if (plain)
            line[(*used)++] = (char)*at;
        else
            *used += (size_t)sprintf(line + *used, "%%%02X", *at);
    }
    return 1;
}

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int agent = socket(AF_UNIX, SOCK_STREAM, 0);
    if (agent < 0)
        return -1;
    if (strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
        if (connect(agent, (struct sockaddr *)&address, sizeof address) == 0)
            return agent;
    }
    close(agent);
    return -1;
}

static int send_all(int agent, const char *line, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(agent, line, length, MSG_NOSIGNAL);
        if (sent <= 0)
            return 0;
        line += sent;
        length -= (size_t)sent;
    }
    return 1;
}

int main(int argc, char **argv)
{
    const char *path = getenv("ESLURM_JOB_SOCKET"), *job = getenv("ESLURM_JOB_ID");
    char line[LINE_BYTES_MAX + 1], *answer = NULL;
    size_t used = 0, room = 0;
    int code = 2;

    if (argc < 2 || !path || !job) {
        fprintf(stderr, "usage, inside a job: %s VERB [KEY=VALUE ...]\n", argv[0]);
        return 2;
    }
    for (int at = 1; at < argc; at++) {
        if (at > 1 && used < LINE_BYTES_MAX)
            line[used++] = ' ';
        if (!put_word(line, &used, argv[at])) {
            fprintf(stderr, "%s: the line is too long\n", argv[0]);
            return 2;
        }
    }
    if (strncmp(argv[1], "hello", 6) != 0 && strncmp(argv[1], "set-dependency", 15) != 0) {
        int more = snprintf(line + used, sizeof line - used, " job=%s", job);
        if (more < 0 || used + (size_t)more >= LINE_BYTES_MAX) {
            fprintf(stderr, "%s: the line is too long\n", argv[0]);
            return 2;
        }
        used += (size_t)more;
    }
    line[used++] = '\n';

    int agent = dial(path);
    FILE *reader = agent < 0 ? NULL : fdopen(agent, "r");
    if (!reader || !send_all(agent, line, used)) {
        perror(path);
        return 2;
    }
    while (getline(&answer, &room, reader) > 0) {
        fputs(answer, stdout);
        if (strcmp(answer, "ok\n") == 0)
            code = 0;
        else if (strncmp(answer, "error ", 6) == 0)
            code = 1;
        else
            continue;
        break;
    }
    free(answer);
    fclose(reader);
    return code;
}
