/* in_c PORT RECORDED FILE SYNCED: what over_uvloop.py does, in C: the least that any server does.
   Without checks of what it is sent: it serves the clients of the bench alone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILE_BYTES = 64 << 20, PIECE_BYTES = 1 << 20, BUFFER_BYTES = 8 << 20, MOST = 256, EVENTS = 64 };

struct answer {
    uint32_t key_size, size;
    unsigned char *key, *body;
};

struct connection {
    uint32_t held, unsent;
    unsigned char *in, *out;
};

static struct answer produce[MOST], others[MOST];
static uint32_t produce_count, others_count, partition_at;
static struct connection *connections[1 << 16];

static void require(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static uint32_t number_at(const unsigned char *at) {
    uint32_t number;
    memcpy(&number, at, 4);
    return ntohl(number);
}

static uint32_t read_number(FILE *file) {
    unsigned char bytes[4];
    require(fread(bytes, 1, 4, file) == 4, "recorded");
    return number_at(bytes);
}

static unsigned char *read_text(FILE *file, uint32_t *size) {
    *size = read_number(file);
    unsigned char *text = malloc(*size + 1);
    require(fread(text, 1, *size, file) == *size, "recorded");
    return text;
}

static uint32_t read_answers(FILE *file, struct answer *answers) {
    uint32_t count = read_number(file);
    require(count <= MOST, "too many");
    for (uint32_t i = 0; i < count; i++) {
        answers[i].key = read_text(file, &answers[i].key_size);
        answers[i].body = read_text(file, &answers[i].size);
    }
    return count;
}

static const struct answer *answer_of(const unsigned char *request, uint32_t size) {
    const struct answer *same_api = NULL;
    if (request[0] == 0 && request[1] == 0) {
        for (uint32_t i = 0; i < produce_count; i++)
            if (!memcmp(produce[i].key, request + partition_at, 4))
                return &produce[i];
    }
    for (uint32_t i = 0; i < others_count; i++) {
        if (memcmp(others[i].key, request, 4))
            continue;
        same_api = &others[i];
        if (others[i].key_size == size - 4 && !memcmp(others[i].key + 4, request + 8, size - 8))
            break;
    }
    require(same_api != NULL, "a request without a recorded response");
    return same_api;
}

/* Returns the bytes of Produce requests that were read; -1 at the end of the connection. */
static int64_t take(int socket, struct connection *one) {
    ssize_t got = recv(socket, one->in + one->held, BUFFER_BYTES - one->held, 0);
    if (got <= 0)
        return -1;
    one->held += got;
    uint32_t at = 0, size;
    int64_t produced = 0;
    for (; one->held - at >= 4 && one->held - at - 4 >= (size = number_at(one->in + at)); at += 4 + size) {
        const unsigned char *request = one->in + at + 4;
        const struct answer *answer = answer_of(request, size);
        if (request[0] == 0 && request[1] == 0)
            produced += size;
        uint32_t length = htonl(answer->size + 4);
        memcpy(one->out + one->unsent, &length, 4);
        memcpy(one->out + one->unsent + 4, request + 4, 4);
        memcpy(one->out + one->unsent + 8, answer->body, answer->size);
        one->unsent += 8 + answer->size;
    }
    one->held -= at;
    memmove(one->in, one->in + at, one->held);
    return produced;
}

static int listening(int port, int epoll) {
    int server = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    require(!bind(server, (void *)&address, sizeof address) && !listen(server, 128), "listen");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = server};
    epoll_ctl(epoll, EPOLL_CTL_ADD, server, &event);
    return server;
}

static void accept_one(int server, int epoll) {
    int socket = accept(server, NULL, NULL), one = 1;
    require(socket >= 0 && socket < 1 << 16, "accept");
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connections[socket] = calloc(1, sizeof(struct connection));
    connections[socket]->in = malloc(BUFFER_BYTES);
    connections[socket]->out = malloc(BUFFER_BYTES);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = socket};
    epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
}

static void close_one(int socket) {
    free(connections[socket]->in);
    free(connections[socket]->out);
    free(connections[socket]);
    connections[socket] = NULL;
    close(socket);
}

int main(int count, char **words) {
    require(count == 5, "in_c PORT RECORDED FILE SYNCED");
    FILE *recorded = fopen(words[2], "rb");
    require(recorded != NULL, words[2]);
    partition_at = read_number(recorded);
    produce_count = read_answers(recorded, produce);
    others_count = read_answers(recorded, others);
    int is_synced = atoi(words[4]), file = open(words[3], O_RDWR | O_CREAT | O_DIRECT, 0600);
    unsigned char *piece = NULL;
    require(file >= 0 && !posix_memalign((void **)&piece, 4096, PIECE_BYTES), words[3]);
    memset(piece, 0, PIECE_BYTES);
    for (off_t at = 0; at < FILE_BYTES; at += PIECE_BYTES)
        require(pwrite(file, piece, PIECE_BYTES, at) == PIECE_BYTES, "write");
    require(!fsync(file), "sync");
    int epoll = epoll_create1(0), server = listening(atoi(words[1]), epoll);
    for (off_t file_at = 0;;) {
        struct epoll_event events[EVENTS];
        int64_t produced = 0, one;
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int socket = events[i].data.fd;
            if (socket == server)
                accept_one(server, epoll);
            else if ((one = take(socket, connections[socket])) < 0)
                close_one(socket);
            else
                produced += one;
        }
        size_t size = (produced + 4095) & ~(size_t)4095;
        size = size > PIECE_BYTES ? PIECE_BYTES : size;
        if (is_synced && size) {
            struct iovec part = {piece, size};
            file_at = file_at + (off_t)size > FILE_BYTES ? 0 : file_at;
            require(pwritev2(file, &part, 1, file_at, RWF_DSYNC) == (ssize_t)size, "write");
            file_at += size;
        }
        for (int i = 0; i < ready; i++) {
            struct connection *answered = connections[events[i].data.fd];
            if (events[i].data.fd == server || answered == NULL || !answered->unsent)
                continue;
            send(events[i].data.fd, answered->out, answered->unsent, MSG_NOSIGNAL);
            answered->unsent = 0;
        }
    }
}
