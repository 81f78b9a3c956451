// SPDX-License-Identifier: GPL-2.0
/*
 * The inits of a guest's modules, as perf record has written them, see
 * guest_modules__write_inits().  Their code is in the kernel's maps from the first sample that may
 * hit it to the last one.
 */
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/zalloc.h>

#include "dso.h"
#include "guest-folder.h"
#include "guest-init-reader.h"
#include "guest-name.h"
#include "guest-orc.h"
#include "machine.h"
#include "map.h"
#include "maps.h"
#include "symbol.h"

/* guest_modules__write_inits() writes fewer lines, and shorter ones. */
#define MAX_EVENTS	8192
#define MAX_SYMBOLS	(1 << 20)
#define MAX_NAME	512
#define MAX_LINE	1024

/* Code of an init is smaller than most modules. */
#define MAX_HIDDEN	4

/* A name, and the address that it has in the guest. */
struct init_symbol {
	u64	addr;
	char	*name;
};

/**
 * struct event - a module's init begins, or ends
 * @time:	when that was, in perf's clock
 * @start:	the first address of its code
 * @end:	the address after the last one; zero if it ends
 * @name:	the name of the code, such as "virtio_net.init"
 * @first:	index of its first symbol
 * @nr:		number of its symbols
 * @hidden:	maps of modules that were loaded there later, while it hides them
 * @nr_hidden:	number of these
 * @line:	its place in the file, which has the order of events of the same time
 */
struct event {
	u64	time;
	u64	start;
	u64	end;
	char	*name;
	size_t	first;
	size_t	nr;
	struct map *hidden[MAX_HIDDEN];
	unsigned int nr_hidden;
	size_t	line;
};

/**
 * struct guest_init_reader - all that was written of the inits of a guest's modules
 * @events:	what begins and ends, sorted by time
 * @nr_events:	number of events
 * @next:	index of the first event that has not been applied
 * @symbols:	the symbols of all inits
 * @nr_symbols:	number of symbols
 * @skip:	true while the symbols of an event are read that was refused
 */
struct guest_init_reader {
	struct event		*events;
	size_t			nr_events;
	size_t			next;
	struct init_symbol	*symbols;
	size_t			nr_symbols;
	bool			skip;
};

/* Read the first line of an init, or that of its end.  The directory may come from elsewhere. */
static bool read_event(const char *line, struct event *event)
{
	char name[MAX_NAME] = "";
	int nr = sscanf(line, "%" SCNu64 " %" SCNx64 " %" SCNx64 " %511s", &event->time,
			&event->start, &event->end, name);

	event->name = NULL;
	event->nr = 0;
	event->nr_hidden = 0;
	if (nr == 2)
		event->end = 0;
	if (nr != 2 && (nr != 4 || event->start >= event->end || strpbrk(name, "[]") ||
			!guest_name__is_clean(name)))
		return false;

	/* Kernels live in the upper half. */
	if ((s64)event->start >= 0)
		return false;
	event->name = nr == 4 ? strdup(name) : NULL;
	return nr == 2 || event->name;
}

/* Read a line like those of /proc/kallsyms; return false if it is none. */
static bool read_symbol(const char *line, struct init_symbol *symbol)
{
	char name[MAX_NAME], type;

	if (sscanf(line, "%16" SCNx64 " %c %511[^\t]\t[", &symbol->addr, &type, name) != 3 ||
	    !strchr("tTwW", type) || is_ignored_kernel_symbol(name) || !guest_name__is_clean(name))
		return false;
	symbol->name = strdup(name);
	return symbol->name;
}

/* Make room for one more element.  The array is full if @nr is zero or a power of two. */
static bool make_room(void **array, size_t nr, size_t max, size_t size)
{
	void *larger;

	if (nr == max)
		return false;
	if (nr & (nr - 1))
		return true;

	larger = realloc(*array, (2 * nr ?: 1) * size);
	if (larger)
		*array = larger;
	return larger;
}

/* Add the symbol of a line to the last event; return false if there are too many. */
static bool add_symbol(struct guest_init_reader *inits, const char *line)
{
	struct event *last = inits->nr_events ? &inits->events[inits->nr_events - 1] : NULL;
	struct init_symbol symbol;

	if (inits->skip || !last || !last->end || !read_symbol(line, &symbol))
		return true;
	if (symbol.addr < last->start || symbol.addr >= last->end) {
		free(symbol.name);
		return true;
	}
	if (!make_room((void **)&inits->symbols, inits->nr_symbols, MAX_SYMBOLS, sizeof(symbol))) {
		free(symbol.name);
		return false;
	}
	inits->symbols[inits->nr_symbols++] = symbol;
	last->nr++;
	return true;
}

/* Add a line of the file; return false if there are too many. */
static bool add_line(struct guest_init_reader *inits, const char *line)
{
	struct event event;

	if (strchr(line, '\t'))
		return add_symbol(inits, line);

	/* Symbols of an event that is refused are not those of the one before it. */
	inits->skip = !read_event(line, &event);
	if (inits->skip)
		return true;
	if (!make_room((void **)&inits->events, inits->nr_events, MAX_EVENTS, sizeof(event))) {
		free(event.name);
		return false;
	}
	event.first = inits->nr_symbols;
	event.line = inits->nr_events;
	inits->events[inits->nr_events++] = event;
	return true;
}

static int cmp_events(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static struct guest_init_reader *guest_init_reader__load(FILE *file)
{
	struct guest_init_reader *inits = zalloc(sizeof(*inits));
	char line[MAX_LINE];

	while (inits && fgets(line, sizeof(line), file) && add_line(inits, line))
		;
	if (inits && inits->nr_events)
		qsort(inits->events, inits->nr_events, sizeof(*inits->events), cmp_events);
	return inits;
}

void guest_init_reader__delete(struct guest_init_reader *inits)
{
	if (!inits)
		return;

	for (size_t i = 0; i < inits->nr_events; i++) {
		while (inits->events[i].nr_hidden)
			map__put(inits->events[i].hidden[--inits->events[i].nr_hidden]);
		free(inits->events[i].name);
	}
	for (size_t i = 0; i < inits->nr_symbols; i++)
		free(inits->symbols[i].name);
	free(inits->events);
	free(inits->symbols);
	free(inits);
}

/* Make the DSO of an init.  perf finds nothing more of it in files. */
static struct dso *make_dso(const struct guest_init_reader *inits, const struct event *event)
{
	char name[MAX_NAME + 2], *copy;
	struct dso *dso;

	scnprintf(name, sizeof(name), "[%s]", event->name);
	dso = dso__new(name);
	copy = strdup(name);
	if (!dso || !copy) {
		dso__put(dso);
		free(copy);
		return NULL;
	}
	dso__set_kernel(dso, DSO_SPACE__KERNEL_GUEST);
	dso__set_symtab_type(dso, DSO_BINARY_TYPE__GUEST_KMODULE);
	dso__set_is_kmod(dso);
	dso__set_short_name(dso, copy, /*name_allocated=*/true);
	for (size_t i = 0; i < event->nr; i++) {
		const struct init_symbol *found = &inits->symbols[event->first + i];
		struct symbol *symbol;

		symbol = symbol__new(found->addr - event->start, 0, STB_GLOBAL, STT_FUNC,
				     found->name);
		if (symbol)
			dso__insert_symbol(dso, symbol);
	}
	symbols__fixup_end(dso__symbols(dso), /*is_kallsyms=*/true);
	dso__set_loaded(dso);
	return dso;
}

static bool is_init(struct map *map)
{
	return str_ends_with(dso__short_name(map__dso(map)), ".init]");
}

/* A map to look for: one that overlaps the code of an init. */
struct overlap {
	const struct event	*event;
	struct map		*found;
};

static int find_overlap(struct map *map, void *data)
{
	struct overlap *overlap = data;

	if (map__start(map) >= overlap->event->end || overlap->event->start >= map__end(map))
		return 0;
	overlap->found = map__get(map);
	return 1;
}

/* Have the modules back that an init has hidden. */
static void show(struct machine *machine, struct event *event)
{
	while (event->nr_hidden) {
		struct map *map = event->hidden[--event->nr_hidden];

		if (!maps__insert(machine__kernel_maps(machine), map))
			guest_orc__add_map(machine, map);
		map__put(map);
	}
}

/*
 * Hide the modules that were loaded where the code of an init was; return false if there is
 * anything else.
 */
static bool hide(struct machine *machine, struct event *event)
{
	struct maps *maps = machine__kernel_maps(machine);
	struct overlap overlap = { .event = event };

	while (maps__for_each_map(maps, find_overlap, &overlap)) {
		if (event->nr_hidden == MAX_HIDDEN || !dso__is_kmod(map__dso(overlap.found)) ||
		    is_init(overlap.found)) {
			map__put(overlap.found);
			show(machine, event);
			return false;
		}
		guest_orc__remove_map(machine, overlap.found);
		maps__remove(maps, overlap.found);
		event->hidden[event->nr_hidden++] = overlap.found;
	}
	return true;
}

static void begin(struct machine *machine, const struct guest_init_reader *inits,
		  struct event *event)
{
	struct map *map;
	struct dso *dso;

	if (!hide(machine, event))
		return;

	dso = make_dso(inits, event);
	map = dso ? map__new2(event->start, dso) : NULL;
	if (map)
		map__set_end(map, event->end);
	if (map && !maps__insert(machine__kernel_maps(machine), map))
		guest_orc__add_map(machine, map);
	else
		show(machine, event);
	map__put(map);
	dso__put(dso);
}

static void end(struct machine *machine, struct guest_init_reader *inits, u64 start)
{
	struct maps *maps = machine__kernel_maps(machine);
	struct map *map = maps__find(maps, start);

	if (map && map__start(map) == start && is_init(map)) {
		guest_orc__remove_map(machine, map);
		maps__remove(maps, map);
		for (size_t i = 0; i < inits->next; i++) {
			if (inits->events[i].start == start)
				show(machine, &inits->events[i]);
		}
	}
	map__put(map);
}

static struct guest_init_reader *machine__init_reader(struct machine *machine)
{
	FILE *file;

	if (machine->guest_init_reader_tried)
		return machine->guest_init_reader;

	machine->guest_init_reader_tried = true;
	file = guest_folder__open(machine, "inits");
	if (file) {
		machine->guest_init_reader = guest_init_reader__load(file);
		fclose(file);
	}
	return machine->guest_init_reader;
}

/**
 * guest_init_reader__use - name and unwind the inits that ran when a guest was sampled
 * @machine:	the guest
 * @time:	time of the sample, in perf's clock
 *
 * Samples come in the order of their times, or nearly so: what has ended does not begin again.
 */
void guest_init_reader__use(struct machine *machine, u64 time)
{
	struct guest_init_reader *inits = machine__init_reader(machine);

	for (; inits && inits->next < inits->nr_events; inits->next++) {
		struct event *event = &inits->events[inits->next];

		if (event->time > time)
			break;
		if (event->end)
			begin(machine, inits, event);
		else
			end(machine, inits, event->start);
	}
}
