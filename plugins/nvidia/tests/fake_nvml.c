/* A library that plays libnvidia-ml.so.1 for the tests, built by nvidia_builders.py and loaded by the real pynvml.
 *
 * FAKE_NVML names a text file that is read anew at every call, so that a test can change the machine under a process:
 *
 *     driver 550.54.15
 *     cuda 12040
 *     errors nvmlInitWithFlags:9          codes that calls return, for all cards
 *     card<TAB>uuid=GPU-..<TAB>bus=00000000:07:00.0<TAB>name=..<TAB>total=..<TAB>used=..<TAB>errors=CALL:CODE,..
 *     slice<TAB>card=0<TAB>uuid=MIG-..<TAB>name=..<TAB>total=..<TAB>used=..<TAB>instance=1
 *     process<TAB>card=0<TAB>pid=41<TAB>bytes=1048576
 *
 * Call * stands for every call that takes a card. Slice numbers may have holes: a slice called "-" is one.
 * Where FLAGPERF_SIMULATE_MEMORY names a file, its line i is what card i uses, in bytes.
 * Built with OLD_DRIVER it lacks the calls that came later: memory v2, processes v3, clock event reasons, which it has
 * by their name before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, MISSING = 6, SMALL = 7, MOST = 32, WIDE = 4096 };

typedef struct { char line[MOST][WIDE]; int count; } Lines;
typedef unsigned long long Bytes;
typedef struct { Bytes total, free, used; } Memory;
typedef struct { unsigned version; Bytes total, reserved, free, used; } Memory2;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; Bytes used; unsigned instance, compute; } Process;

static void read_lines(const char *word, Lines *lines) {
    char line[WIDE];
    FILE *file = fopen(getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "", "r");
    lines->count = 0;
    while (file && fgets(line, sizeof line, file) && lines->count < MOST) {
        line[strcspn(line, "\n")] = 0;
        size_t length = strlen(word);
        if (!strncmp(line, word, length) && (line[length] == ' ' || line[length] == '\t'))
            strcpy(lines->line[lines->count++], line + length);
    }
    if (file) fclose(file);
}

static const char *value(const char *line, const char *key, const char *otherwise, char *into) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\t%s=", key);
    const char *found = strstr(line, wanted);
    snprintf(into, WIDE, "%s", found ? found + strlen(wanted) : otherwise);
    if (found) into[strcspn(into, "\t")] = 0;
    return into;
}

static Bytes number(const char *line, const char *key, const char *otherwise) {
    char text[WIDE];
    return strtoull(value(line, key, otherwise, text), NULL, 0);
}

static int code_of(const char *list, const char *call) {
    char copy[WIDE], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *word; (word = strsep(&rest, ", "));) {
        char *colon = strchr(word, ':');
        if (!colon) continue;
        *colon = 0;
        if (!strcmp(word, call) || (!strcmp(word, "*") && strncmp(call, "nvmlDeviceGetHandle", 19))) return atoi(colon + 1);
    }
    return OK;
}

static int refused(const char *call) {
    static Lines lines;
    read_lines("errors", &lines);
    for (int i = 0; i < lines.count; i++)
        if (code_of(lines.line[i], call)) return code_of(lines.line[i], call);
    return OK;
}

/* Handles are numbers: 1 to 32 are cards, 101 and up slices. */
static int find(void *handle, const char *call, char *line) {
    static Lines lines;
    char errors[WIDE];
    size_t id = (size_t)handle;
    read_lines(id > 100 ? "slice" : "card", &lines);
    int index = (int)(id > 100 ? id - 101 : id - 1);
    if (index < 0 || index >= lines.count) return INVALID;
    strcpy(line, lines.line[index]);
    int code = code_of(value(line, "errors", "", errors), call);
    return code ? code : refused(call);
}

static int search(const char *key, const char *wanted, void **handle) {
    static Lines cards, slices;
    char text[WIDE];
    read_lines("card", &cards);
    read_lines("slice", &slices);
    for (int i = 0; i < cards.count; i++)
        if (!strcasecmp(value(cards.line[i], key, "", text), wanted)) return *handle = (void *)(size_t)(i + 1), OK;
    for (int i = 0; i < slices.count; i++)
        if (!strcmp(value(slices.line[i], key, "", text), wanted)) return *handle = (void *)(size_t)(i + 101), OK;
    return MISSING;
}

static Bytes used_bytes(void *handle, const char *line) {
    const char *path = getenv("FLAGPERF_SIMULATE_MEMORY");
    FILE *file = path && (size_t)handle <= MOST ? fopen(path, "r") : NULL;
    Bytes used = number(line, "used", "0"), read;
    for (size_t i = 1; file && fscanf(file, "%llu", &read) == 1; i++)
        if (i == (size_t)handle) used = read;
    if (file) fclose(file);
    return used;
}

static int text_of(void *handle, const char *call, const char *key, char *into, unsigned size) {
    char line[WIDE], text[WIDE];
    int code = find(handle, call, line);
    if (!code) snprintf(into, size, "%s", value(line, key, "", text));
    return code;
}

static int number_of(void *handle, const char *call, const char *key, unsigned *into) {
    char line[WIDE], text[WIDE];
    int code = find(handle, call, line);
    if (code) return code;
    if (!*value(line, key, "", text)) return UNSUPPORTED;
    *into = (unsigned)number(line, key, "0");
    return OK;
}

static int wide_number_of(void *handle, const char *call, const char *key, Bytes *into) {
    char line[WIDE], text[WIDE];
    int code = find(handle, call, line);
    if (code) return code;
    if (!*value(line, key, "", text)) return UNSUPPORTED;
    *into = number(line, key, "0");
    return OK;
}

static int first_of(const char *word, char *into, unsigned size) {
    static Lines lines;
    read_lines(word, &lines);
    snprintf(into, size, "%s", lines.count ? lines.line[0] + 1 : "");
    return OK;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return refused("nvmlInitWithFlags"); }
int nvmlShutdown(void) { return refused("nvmlShutdown"); }
const char *nvmlErrorString(int code) { static char text[32]; snprintf(text, sizeof text, "code %d", code); return text; }

int nvmlSystemGetDriverVersion(char *into, unsigned size) {
    int code = refused("nvmlSystemGetDriverVersion");
    return code ? code : first_of("driver", into, size);
}

int nvmlSystemGetCudaDriverVersion(int *into) {
    char text[64];
    first_of("cuda", text, sizeof text);
    *into = atoi(text);
    return refused("nvmlSystemGetCudaDriverVersion");
}

int nvmlDeviceGetCount_v2(unsigned *into) {
    static Lines lines;
    read_lines("card", &lines);
    *into = (unsigned)lines.count;
    return refused("nvmlDeviceGetCount_v2");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    char line[WIDE];
    *handle = (void *)(size_t)(index + 1);
    return find(*handle, "nvmlDeviceGetHandleByIndex_v2", line);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char line[WIDE];
    int code = search("uuid", uuid, handle);
    return code ? code : find(*handle, "nvmlDeviceGetHandleByUUID", line);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "0000%s", address);
    return search("bus", wanted, handle);
}

int nvmlDeviceGetName(void *handle, char *into, unsigned size) { return text_of(handle, "nvmlDeviceGetName", "name", into, size); }
int nvmlDeviceGetUUID(void *handle, char *into, unsigned size) { return text_of(handle, "nvmlDeviceGetUUID", "uuid", into, size); }

int nvmlDeviceGetPciInfo_v3(void *handle, Pci *into) {
    char line[WIDE], text[WIDE];
    int code = find(handle, "nvmlDeviceGetPciInfo_v3", line);
    if (code) return code;
    memset(into, 0, sizeof *into);
    snprintf(into->bus_id, sizeof into->bus_id, "%s", value(line, "bus", "", text));
    into->id = (unsigned)number(line, "pci_id", "0x20b010de");
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *into) {
    char line[WIDE];
    int code = find(handle, "nvmlDeviceGetMemoryInfo", line);
    if (code) return code;
    into->total = number(line, "total", "0");
    into->used = used_bytes(handle, line) + number(line, "reserved", "0");
    into->free = into->total - into->used;
    return OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *into) {
    char line[WIDE];
    int code = find(handle, "nvmlDeviceGetMemoryInfo_v2", line);
    if (code) return code;
    into->total = number(line, "total", "0");
    into->reserved = number(line, "reserved", "0");
    into->used = used_bytes(handle, line);
    into->free = into->total - into->used - into->reserved;
    if (number(line, "used_includes_reserved", "0")) into->used += into->reserved;
    return OK;
}
#endif

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *into) {
    into->memory = 0;
    return number_of(handle, "nvmlDeviceGetUtilizationRates", "utilization", &into->gpu);
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *into) { return number_of(handle, "nvmlDeviceGetPowerUsage", "milliwatts", into); }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *into) { return number_of(handle, "nvmlDeviceGetEnforcedPowerLimit", "limit", into); }

int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *into) {
    return number_of(handle, "nvmlDeviceGetPowerManagementDefaultLimit", "default_limit", into);
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *into) {
    return sensor ? INVALID : number_of(handle, "nvmlDeviceGetTemperature", "celsius", into);
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, Bytes *into) {
    return wide_number_of(handle, "nvmlDeviceGetTotalEnergyConsumption", "millijoules", into);
}

int nvmlDeviceGetClockInfo(void *handle, int clock, unsigned *into) {
    return clock != 1 ? INVALID : number_of(handle, "nvmlDeviceGetClockInfo", "sm_mhz", into);
}

#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, Bytes *into) {
    return wide_number_of(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", "throttle", into);
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, Bytes *into) {
    return wide_number_of(handle, "nvmlDeviceGetCurrentClocksEventReasons", "throttle", into);
}
#endif

int nvmlDeviceGetRemappedRows(void *handle, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    const char *call = "nvmlDeviceGetRemappedRows";
    *correctable = 0;
    int code = number_of(handle, call, "rows_uncorrectable", uncorrectable);
    if (!code) code = number_of(handle, call, "rows_pending", pending);
    return code ? code : number_of(handle, call, "rows_failed", failed);
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *handle, unsigned *into) {
    return number_of(handle, "nvmlDeviceGetRetiredPagesPendingStatus", "pages_pending", into);
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *into) {
    return number_of(handle, "nvmlDeviceGetGpuInstanceId", "instance", into);
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    int code = number_of(handle, "nvmlDeviceGetMigMode", "mig", current);
    *pending = *current;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *into) { (void)handle; *into = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **slice) {
    static Lines lines;
    char text[WIDE];
    read_lines("slice", &lines);
    unsigned seen = 0;
    for (int i = 0; i < lines.count; i++) {
        if (number(lines.line[i], "card", "0") + 1 != (size_t)handle || seen++ != index) continue;
        if (!strcmp(value(lines.line[i], "uuid", "", text), "-")) return MISSING;
        return *slice = (void *)(size_t)(i + 101), OK;
    }
    return MISSING;
}

static int processes(void *handle, const char *call, unsigned *count, Process *into) {
    static Lines lines;
    char line[WIDE];
    unsigned found = 0;
    int code = find(handle, call, line);
    if (code) return code;
    read_lines("process", &lines);
    for (int i = 0; i < lines.count; i++) {
        if (number(lines.line[i], "card", "0") + 1 != (size_t)handle) continue;
        if (into && found < *count)
            into[found] = (Process){(unsigned)number(lines.line[i], "pid", "0"), number(lines.line[i], "bytes", "0"), 0, 0};
        found++;
    }
    int small = found > *count;
    *count = found;
    return small ? SMALL : OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *into) {
    return processes(handle, "nvmlDeviceGetComputeRunningProcesses_v3", count, into);
}
#endif

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, Process *into) {
    return processes(handle, "nvmlDeviceGetComputeRunningProcesses_v2", count, into);
}
