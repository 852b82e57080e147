// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a drive is and what a run found, as JSON. Times are in nanoseconds, from cycles of the TSC.
 */
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/seq_buf.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timex.h>

#include "hwperf.h"

#define TEXT_BYTES	4096
/* Of the report. */
#define VERSION		1

/* The class of a number: itself if it is small, else its highest bits. */
u32 hwperf_class(u64 cycles)
{
	u32 shift;

	if (cycles < 1 << HWPERF_CLASS_BITS)
		return cycles;
	shift = ilog2(cycles) - HWPERF_CLASS_BITS;
	return ((shift + 1) << HWPERF_CLASS_BITS) +
	       ((cycles >> shift) & ((1 << HWPERF_CLASS_BITS) - 1));
}

/* The largest number of a class. */
static u64 most_of(u32 class)
{
	u32 shift = class >> HWPERF_CLASS_BITS;
	u64 low = class & ((1 << HWPERF_CLASS_BITS) - 1);

	if (!shift)
		return low;
	shift--;
	return (((1ULL << HWPERF_CLASS_BITS) + low + 1) << shift) - 1;
}

static u64 ns(u64 cycles)
{
	return mul_u64_u64_div_u64(cycles, 1000000, tsc_khz);
}

/* The latency that so many of a million I/Os do not pass. */
static u64 percentile(const struct hwperf_found *found, u32 millionth)
{
	u64 wanted = DIV64_U64_ROUND_UP(found->counted * millionth, 1000000);
	u64 seen = 0;
	u32 class;

	for (class = 0; class < HWPERF_CLASSES; class++) {
		seen += found->classes[class];
		if (seen && seen >= wanted)
			return min(most_of(class), found->most);
	}
	return found->most;
}

/* Text of a fixed length, without the blanks at its end; quotes would end JSON. */
void hwperf_copy_text(char *to, const u8 *from, size_t len)
{
	size_t at;

	for (at = 0; at < len; at++) {
		char c = from[at];

		to[at] = c < ' ' || c > '~' || c == '"' || c == '\\' ? ' ' : c;
	}
	to[len] = 0;
	strim(to);
}

/* Room for a text; NULL: there is none. */
static char *begin(struct seq_buf *text)
{
	char *bytes = kzalloc(TEXT_BYTES, GFP_KERNEL);

	if (bytes)
		seq_buf_init(text, bytes, TEXT_BYTES);
	return bytes;
}

static char *end(struct seq_buf *text, char *bytes)
{
	if (!seq_buf_has_overflowed(text))
		return bytes;
	kfree(bytes);
	return NULL;
}

/* Which drive it is. */
static void name(struct seq_buf *text,
		 const struct hwperf_controller *controller)
{
	seq_buf_printf(text, "\"address\":\"%s\",\"unit\":\"%s\",",
		       pci_name(controller->pdev), controller->unit);
	seq_buf_printf(text, "\"model\":\"%s\",\"serial\":\"%s\",",
		       controller->model, controller->serial);
}

/* What a drive is, and how much it takes, as JSON. */
char *hwperf_about(const struct hwperf_controller *controller)
{
	struct seq_buf text;
	char *bytes = begin(&text);

	if (!bytes)
		return NULL;
	seq_buf_printf(&text, "{\"driver\":\"%s\",", controller->ops->name);
	name(&text, controller);
	seq_buf_printf(&text, "\"block_bytes\":%u,\"blocks\":%llu,\"command_bytes_max\":%u,",
		       1 << controller->block_shift, controller->blocks,
		       controller->command_bytes_max);
	seq_buf_printf(&text, "\"queues\":%u,\"depth_max\":%u,\"slots_max\":%u}\n",
		       controller->queues, controller->depth_max,
		       controller->slots_max);
	return end(&text, bytes);
}

char *hwperf_report(const struct hwperf_controller *controller,
		    const struct hwperf_load *load,
		    const struct hwperf_found *found)
{
	u64 cycles = found->end - found->begin;
	u64 took = max(ns(cycles), 1ULL);
	u64 per_s = mul_u64_u64_div_u64(found->counted, NSEC_PER_SEC, took);
	u64 counted = max(found->counted, 1ULL);
	struct seq_buf text;
	char *bytes = begin(&text);

	if (!bytes)
		return NULL;
	seq_buf_printf(&text, "{\"format\":\"hwperf\",\"version\":%u,", VERSION);
	name(&text, controller);
	seq_buf_printf(&text, "\"rw\":\"%s%s\",\"block_bytes\":%u,\"depth\":%u,\"jobs\":%u,",
		       load->random ? "rand" : "",
		       load->verb == HWPERF_WRITE ? "write" : "read",
		       load->block_bytes, load->depth, load->jobs);
	seq_buf_printf(&text, "\"submit_cpu\":%u,\"poll_cpu\":%u,\"tsc_khz\":%u,",
		       load->submit_cpu, load->poll_cpu, tsc_khz);
	seq_buf_printf(&text, "\"ios\":%llu,\"doorbells\":%llu,\"completions\":%llu,",
		       found->submitted, found->doorbells, found->completed);
	seq_buf_printf(&text, "\"completion_doorbells\":%llu,\"strangers\":%llu,",
		       found->completion_doorbells, found->strangers);
	seq_buf_printf(&text, "\"verified_blocks\":%llu,\"wrong_blocks\":%llu,",
		       found->verified, found->wrong);
	seq_buf_printf(&text, "\"counted\":%llu,\"counted_ns\":%llu,\"backwards\":%llu,",
		       found->counted, took, found->backwards);
	seq_buf_printf(&text, "\"ios_per_s\":%llu,\"bytes_per_s\":%llu,", per_s,
		       per_s * load->block_bytes);
	seq_buf_printf(&text, "\"latency_ns\":{\"mean\":%llu,\"min\":%llu,",
		       ns(div64_u64(found->sum, counted)),
		       found->counted ? ns(found->least) : 0);
	seq_buf_printf(&text, "\"p50\":%llu,\"p90\":%llu,",
		       ns(percentile(found, 500000)),
		       ns(percentile(found, 900000)));
	seq_buf_printf(&text, "\"p99\":%llu,\"p999\":%llu,\"max\":%llu}}\n",
		       ns(percentile(found, 990000)),
		       ns(percentile(found, 999000)), ns(found->most));
	return end(&text, bytes);
}
