// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a run found, as JSON. Times are in nanoseconds, from cycles of the TSC.
 */
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/slab.h>
#include <linux/timex.h>

#include "hwperf.h"

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

char *hwperf_report(const struct hwperf_controller *controller,
		    const struct hwperf_load *load,
		    const struct hwperf_found *found)
{
	u64 cycles = found->end - found->begin;
	u64 took = max(ns(cycles), 1ULL);
	u64 per_s = mul_u64_u64_div_u64(found->counted, NSEC_PER_SEC, took);
	u64 counted = max(found->counted, 1ULL);

	return kasprintf(GFP_KERNEL,
		"{\"format\":\"hwperf\",\"version\":1,\"address\":\"%s\",\"model\":\"%s\",\"serial\":\"%s\","
		"\"rw\":\"%s%s\",\"block_bytes\":%u,\"depth\":%u,\"jobs\":%u,"
		"\"submit_cpu\":%u,\"poll_cpu\":%u,\"tsc_khz\":%u,"
		"\"ios\":%llu,\"doorbells\":%llu,\"completions\":%llu,\"completion_doorbells\":%llu,"
		"\"strangers\":%llu,\"verified_blocks\":%llu,\"wrong_blocks\":%llu,"
		"\"counted\":%llu,\"counted_ns\":%llu,\"ios_per_s\":%llu,\"bytes_per_s\":%llu,"
		"\"latency_ns\":{\"mean\":%llu,\"min\":%llu,\"p50\":%llu,\"p90\":%llu,\"p99\":%llu,\"p999\":%llu,\"max\":%llu}}\n",
		pci_name(controller->pdev), controller->model, controller->serial,
		load->random ? "rand" : "",
		load->verb == HWPERF_WRITE ? "write" : "read",
		load->block_bytes, load->depth, load->jobs,
		load->submit_cpu, load->poll_cpu, tsc_khz,
		found->submitted, found->doorbells, found->completed,
		found->completion_doorbells, found->strangers, found->verified,
		found->wrong, found->counted, took, per_s,
		per_s * load->block_bytes, ns(div64_u64(found->sum, counted)),
		found->counted ? ns(found->least) : 0,
		ns(percentile(found, 500000)), ns(percentile(found, 900000)),
		ns(percentile(found, 990000)), ns(percentile(found, 999000)),
		ns(found->most));
}
