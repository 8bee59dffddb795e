/* A device in plain C99 and POSIX sockets: it attaches to a Tidegate server, answers requests, and tells events.
 * docs/devices.md says what is spoken.
 *
 *     cc -std=c99 -Wall -Wextra -o device device.c
 *     TIDEGATE_KEY=a-key-for-devices ./device 127.0.0.1 8470 meters c-1
 *
 * It has three parts. "The link" is all that knows of sockets: on a microcontroller these four functions are those of
 * its network or TLS stack. "The messages" are bytes in a buffer of fixed size: nothing is allocated. "The device" is
 * what you would write: what to answer, what to tell, and when. */

#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Settings. */

enum {
    HEARTBEAT_MS = 10000,
    EVENT_MS = 5000,
    ANSWER_TO_ATTACH_MS = 10000,
    PAUSE_MS_MIN = 500,
    PAUSE_MS_MAX = 30000,
    MESSAGE_BYTES_MAX = 2048, /* Of one message; what is asked in more is declined. */
};

static volatile sig_atomic_t is_stopping;

static void stop(int signal_number) {
    (void)signal_number;
    is_stopping = 1;
}

/* The link: bytes to the server and back. */

static int link_open(const char *host, const char *port) {
    struct addrinfo hints = {0}, *found = NULL;
    int link = -1;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &hints, &found) != 0) return -1;
    for (struct addrinfo *it = found; it != NULL && link < 0; it = it->ai_next) {
        link = socket(it->ai_family, it->ai_socktype, it->ai_protocol);
        if (link >= 0 && connect(link, it->ai_addr, it->ai_addrlen) != 0) {
            close(link);
            link = -1;
        }
    }
    freeaddrinfo(found);
    if (link >= 0) {
        int yes = 1;
        setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
#ifdef TCP_USER_TIMEOUT
        /* A server that takes no heartbeat for so long is gone, although no packet says so. */
        unsigned int unanswered_ms = 3 * HEARTBEAT_MS;
        setsockopt(link, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
#endif
    }
    return link;
}

/* Sends everything; answers -1 if the link is gone. */
static int link_send(int link, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t sent = send(link, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return -1;
        bytes += sent;
        count -= (size_t)sent;
    }
    return 0;
}

/* Waits for bytes: how many came, 0 if none did in time, -1 if the link is gone. */
static int link_receive(int link, char *bytes, size_t room, long wait_ms) {
    struct pollfd wanted = {.fd = link, .events = POLLIN};
    int ready = poll(&wanted, 1, wait_ms > 0 ? (int)wait_ms : 0);
    if (ready <= 0) return ready == 0 || errno == EINTR ? 0 : -1;
    ssize_t count = recv(link, bytes, room, 0);
    if (count < 0 && errno == EINTR) return 0;
    return count > 0 ? (int)count : -1;
}

static void link_close(int link) { close(link); }

/* The messages: chunks of the two bodies, each a letter, perhaps four digits, and a payload. */

enum reading { HEAD, SIZE, CHUNK, CHUNK_END, REFUSED };

struct attachment {
    int link;
    enum reading reading;
    int status;                          /* Of the response; 0 until it is here. */
    size_t chunk_left;                   /* Bytes of the chunk that are missing. */
    size_t size;                         /* Bytes of the message so far, also those that had no room. */
    char message[MESSAGE_BYTES_MAX + 1]; /* The line, or the message, that is arriving. */
    int is_welcome, is_over;             /* The server said W; it said C. */
    int was_taken_over;                  /* It said C with the code 4224. */
};

static void keep(struct attachment *it, char byte) {
    if (it->size < MESSAGE_BYTES_MAX) it->message[it->size] = byte;
    it->size += 1;
    it->message[it->size < MESSAGE_BYTES_MAX ? it->size : MESSAGE_BYTES_MAX] = '\0';
}

/* Sends one message: `kind` and, for an answer, the digits of its request, then the payload. */
static int say(struct attachment *it, char kind, const char *digits, const char *payload, size_t count) {
    static char chunk[MESSAGE_BYTES_MAX + 32];
    if (count > MESSAGE_BYTES_MAX) return -1;
    int head = sprintf(chunk, "%zx\r\n%c%.4s", 1 + strlen(digits) + count, kind, digits);
    memcpy(chunk + head, payload, count);
    memcpy(chunk + head + count, "\r\n", 2);
    return link_send(it->link, chunk, (size_t)head + count + 2);
}

/* The device: what it answers and tells. */

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A pretend sensor. */
static double celsius(void) {
    static double last = 21.0;
    last += (rand() % 21 - 10) / 100.0;
    return last;
}

/* Answers one request: `temperature` reads the sensor, anything else is echoed. */
static int answer(struct attachment *it, const char *digits, const char *payload, size_t count) {
    if (it->size > MESSAGE_BYTES_MAX) {
        static const char why[] = "the request is larger than this device can take";
        return say(it, 'N', digits, why, sizeof why - 1);
    }
    if (count == 11 && memcmp(payload, "temperature", 11) == 0) {
        char text[64];
        int bytes = sprintf(text, "{\"celsius\":%.2f}", celsius());
        return say(it, 'A', digits, text, (size_t)bytes);
    }
    return say(it, 'A', digits, payload, count);
}

static int hear(struct attachment *it) {
    char digits[5] = "";
    switch (it->message[0]) {
    case 'W':
        it->is_welcome = 1;
        printf("attached %s\n", it->message + 1);
        break;
    case 'Q':
        if (it->size < 5) return -1;
        memcpy(digits, it->message + 1, 4);
        return answer(it, digits, it->message + 5, it->size - 5);
    case 'C':
        it->is_over = 1;
        it->was_taken_over = strstr(it->message, "\"code\":4224") != NULL;
        printf("closed %s\n", it->message + 1);
        break;
    default: /* Of a later version of the protocol: it does not concern us. */
        break;
    }
    return 0;
}

/* Takes one byte of the response; answers -1 when the attachment is over. */
static int take(struct attachment *it, char byte) {
    int is_line_end = byte == '\n';
    switch (it->reading) {
    case HEAD:
        if (!is_line_end) {
            if (byte != '\r') keep(it, byte);
            return 0;
        }
        if (it->status == 0 && sscanf(it->message, "HTTP/%*s %d", &it->status) != 1) return -1;
        if (it->size == 0) it->reading = it->status == 200 ? SIZE : REFUSED;
        break;
    case SIZE:
        if (!is_line_end) {
            keep(it, byte);
            return 0;
        }
        it->chunk_left = strtoul(it->message, NULL, 16);
        if (it->chunk_left == 0) return -1; /* The last chunk: the response is over. */
        it->reading = CHUNK;
        break;
    case CHUNK:
        keep(it, byte);
        it->chunk_left -= 1;
        if (it->chunk_left > 0) return 0;
        if (hear(it) != 0) return -1;
        it->reading = CHUNK_END;
        break;
    case CHUNK_END:
        if (is_line_end) it->reading = SIZE;
        break;
    case REFUSED: /* The body says why. */
        keep(it, byte);
        return 0;
    }
    it->size = 0;
    it->message[0] = '\0';
    return it->is_over ? -1 : 0;
}

/* Heartbeats and events, when they are due; answers -1 if the link is gone, else the time of the next one. */
static long long tell(struct attachment *it, long long now) {
    static long long heartbeat_at, event_at;
    if (now >= heartbeat_at) {
        if (say(it, 'H', "", "", 0) != 0) return -1;
        heartbeat_at = now + HEARTBEAT_MS;
    }
    if (now >= event_at) {
        char text[96];
        int bytes = sprintf(text, "{\"celsius\":%.2f,\"uptime_ms\":%lld}", celsius(), now);
        if (say(it, 'E', "", text, (size_t)bytes) != 0) return -1;
        event_at = now + EVENT_MS;
    }
    return heartbeat_at < event_at ? heartbeat_at : event_at;
}

/* Attaches and serves until the link is gone. */
static void serve(struct attachment *it, char *words[]) {
    char bytes[512];
    const char *key = getenv("TIDEGATE_KEY");
    memset(it, 0, sizeof *it);
    it->link = link_open(words[1], words[2]);
    if (it->link < 0) return;
    int count = snprintf(bytes, sizeof bytes,
                         "POST /v1/devices/attach?application=%s&device=%s&heartbeat_ms=%d HTTP/1.1\r\n"
                         "Host: %s:%s\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n",
                         words[3], words[4], HEARTBEAT_MS, words[1], words[2], key ? key : "");
    int is_there = count < (int)sizeof bytes && link_send(it->link, bytes, (size_t)count) == 0;
    long long due = now_ms() + ANSWER_TO_ATTACH_MS;
    while (is_there && !is_stopping) {
        long long now = now_ms();
        if (it->is_welcome) {
            due = tell(it, now);
            is_there = due >= 0;
        } else if (now >= due) {
            is_there = 0;
        }
        if (!is_there) break;
        count = link_receive(it->link, bytes, sizeof bytes, (long)(due - now));
        is_there = count >= 0;
        for (int at = 0; at < count && is_there; at++) is_there = take(it, bytes[at]) == 0;
    }
    if (is_stopping && it->is_welcome) say(it, 'D', "", "", 0);
    if (it->reading == REFUSED) printf("refused %d %s\n", it->status, it->message);
    link_close(it->link);
}

int main(int count, char *words[]) {
    static struct attachment attachment;
    struct sigaction action = {0};
    if (count != 5) {
        fprintf(stderr, "usage: TIDEGATE_KEY=KEY %s HOST PORT APPLICATION DEVICE\n", words[0]);
        return 2;
    }
    action.sa_handler = stop;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    srand((unsigned)(now_ms() ^ getpid()));
    for (long pause_ms = PAUSE_MS_MIN; !is_stopping;) {
        serve(&attachment, words);
        if (attachment.was_taken_over) return 3; /* To attach again would take the name from the other. */
        if (attachment.is_welcome) pause_ms = PAUSE_MS_MIN;
        if (attachment.status >= 400 && attachment.status < 404) pause_ms = PAUSE_MS_MAX; /* Not soon mended. */
        if (is_stopping) break;
        /* A random part keeps many devices from coming back at one moment. */
        long wait_ms = pause_ms / 2 + rand() % (pause_ms / 2 + 1);
        printf("gone, again in %ld ms\n", wait_ms);
        struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000};
        nanosleep(&wait, NULL);
        pause_ms = pause_ms * 2 < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX;
    }
    return 0;
}
