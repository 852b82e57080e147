// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a run is asked for: "rw=randread bs=4096 depth=32 ms=1000". A word that
 * is not known, or not wanted twice, is an error: nothing is guessed.
 */
#include <linux/cpumask.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/string.h>

#include "hwperf.h"

static int parse_verb(const char *value, struct hwperf_load *load)
{
	static const struct {
		const char *name;
		enum hwperf_verb verb;
		bool random;
	} known[] = {
		{ "randread", HWPERF_READ, true },
		{ "randwrite", HWPERF_WRITE, true },
		{ "read", HWPERF_READ, false },
		{ "write", HWPERF_WRITE, false },
	};
	int at;

	for (at = 0; at < ARRAY_SIZE(known); at++) {
		if (strcmp(value, known[at].name))
			continue;
		load->verb = known[at].verb;
		load->random = known[at].random;
		return 0;
	}
	return -EINVAL;
}

static int parse_word(char *word, struct hwperf_load *load)
{
	const struct {
		const char *name;
		u32 *number;
	} numbers[] = {
		{ "bs", &load->block_bytes },
		{ "depth", &load->depth },
		{ "jobs", &load->jobs },
		{ "ms", &load->ms },
		{ "ramp_ms", &load->ramp_ms },
		{ "submit_cpu", &load->submit_cpu },
		{ "poll_cpu", &load->poll_cpu },
	};
	char *value = strchr(word, '=');
	int at;

	if (!value)
		return -EINVAL;
	*value++ = 0;
	for (at = 0; at < ARRAY_SIZE(numbers); at++) {
		if (!strcmp(word, numbers[at].name))
			return kstrtou32(value, 0, numbers[at].number);
	}
	if (!strcmp(word, "rw"))
		return parse_verb(value, load);
	if (!strcmp(word, "ios"))
		return kstrtou64(value, 0, &load->ios);
	if (!strcmp(word, "seed"))
		return kstrtou64(value, 0, &load->seed);
	if (!strcmp(word, "verify"))
		return kstrtobool(value, &load->verify);
	if (!strcmp(word, "allow_writes"))
		return kstrtobool(value, &load->allow_writes);
	return -EINVAL;
}

int hwperf_parse(char *text, struct hwperf_load *load)
{
	char *word;

	*load = (struct hwperf_load) {
		.random = true,
		.block_bytes = 4096,
		.depth = 1,
		.jobs = 1,
		.ms = 1000,
		.ramp_ms = 50,
		.poll_cpu = num_online_cpus() > 1 ? 1 : 0,
		.seed = 1,
	};
	while ((word = strsep(&text, "\n\t "))) {
		int err = *word ? parse_word(word, load) : 0;

		if (err) {
			pr_err("hwperf: not understood: %s\n", word);
			return err;
		}
	}
	return 0;
}

static int refuse(const struct hwperf_controller *controller, const char *why,
		  int err)
{
	dev_err(&controller->pdev->dev, "refused: %s\n", why);
	return err;
}

int hwperf_check(const struct hwperf_controller *controller,
		 const struct hwperf_load *load)
{
	u64 blocks;

	if (load->verb == HWPERF_WRITE && !load->allow_writes)
		return refuse(controller,
			      "it writes, and destroys what is on the drive: say allow_writes=1",
			      -EPERM);
	if (!is_power_of_2(load->block_bytes) ||
	    load->block_bytes < 1U << controller->block_shift)
		return refuse(controller, "bs is no power of two of the drive's blocks",
			      -EINVAL);
	if (load->block_bytes > controller->command_bytes_max)
		return refuse(controller, "bs is more than one command moves",
			      -EOPNOTSUPP);
	if (!load->depth || load->depth > controller->depth_max)
		return refuse(controller, "depth is over that of the controller's queues",
			      -EINVAL);
	if (!load->jobs || load->jobs > HWPERF_JOBS_MAX ||
	    load->jobs > controller->queues)
		return refuse(controller, "more jobs than the controller grants queues",
			      -EINVAL);
	if ((u64)load->jobs * load->depth > controller->slots_max)
		return refuse(controller, "jobs times depth is over the controller's credit",
			      -EINVAL);
	if ((!load->ms && !load->ios) || load->ms > 3600 * 1000 ||
	    load->ramp_ms > 60 * 1000)
		return refuse(controller, "ms is at most an hour, ramp_ms a minute",
			      -EINVAL);
	if (!cpu_possible(load->submit_cpu) || !cpu_online(load->submit_cpu) ||
	    !cpu_possible(load->poll_cpu) || !cpu_online(load->poll_cpu))
		return refuse(controller, "there is no such processor", -EINVAL);
	blocks = controller->blocks >>
		 (ilog2(load->block_bytes) - controller->block_shift);
	if (blocks < load->jobs)
		return refuse(controller, "the drive is too small", -EINVAL);
	return 0;
}
