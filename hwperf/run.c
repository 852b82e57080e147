// SPDX-License-Identifier: GPL-2.0-only
/*
 * A run: one thread rings doorbells until all slots are under way, and again
 * when one is free; another one, on another processor, polls and counts. The
 * two share the list of free slots of each queue, and nothing else that
 * changes but the words below.
 *
 * Always holds: when hwperf_run returns, both threads have ended, and no
 * command is under way on a queue whose memory is free.
 */
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/timex.h>

#include "hwperf.h"

/* Turns of a loop between two looks at whether others want the processor. */
#define TURNS	1024

struct run {
	struct hwperf_controller *controller;
	const struct hwperf_load *load;
	struct hwperf_queue **queues;
	/* What the ringing thread counts, and what the polling one does. */
	struct hwperf_found rung;
	struct hwperf_found *polled;
	u64 from;
	u64 until;
	bool stop;
	/* No more comes than was submitted so far. */
	bool rung_all;
	int err;
	struct completion ringing_ended;
	struct completion polling_ended;
};

static int ring(void *data)
{
	struct run *run = data;
	const struct hwperf_load *load = run->load;
	u32 turns = 0;

	for (;;) {
		bool any = false;
		u32 job;

		for (job = 0; job < load->jobs; job++) {
			if (load->ios && run->rung.submitted == load->ios)
				goto end;
			any |= hwperf_queue_submit(run->queues[job], load,
						   &run->rung);
		}
		if (!any)
			cpu_relax();
		if (READ_ONCE(run->stop) ||
		    (!load->ios && get_cycles() >= run->until))
			break;
		if (++turns % TURNS == 0)
			cond_resched();
	}
end:
	/* Pairs with the acquire in poll: the number is the last one. */
	smp_store_release(&run->rung_all, true);
	complete(&run->ringing_ended);
	return 0;
}

static int poll(void *data)
{
	struct run *run = data;
	struct hwperf_controller *controller = run->controller;
	struct hwperf_found *found = run->polled;
	unsigned long progress = jiffies;
	u32 turns = 0;

	for (;;) {
		/* Read before the queues: what completes later is seen in the next turn. */
		bool is_last = smp_load_acquire(&run->rung_all);
		u32 taken = 0;
		u32 job;

		for (job = 0; job < run->load->jobs; job++)
			taken += hwperf_queue_reap(run->queues[job], run->load,
						   found, run->from);
		if (taken)
			progress = jiffies;
		if (is_last && found->completed == run->rung.submitted)
			break;
		if (READ_ONCE(controller->removed))
			WRITE_ONCE(run->stop, true);
		if (found->errors)
			WRITE_ONCE(run->stop, true);
		if (!taken)
			cpu_relax();
		if (++turns % TURNS)
			continue;
		cond_resched();
		if (time_after(jiffies, progress +
					msecs_to_jiffies(HWPERF_TIMEOUT_MS))) {
			run->err = -ETIMEDOUT;
			WRITE_ONCE(run->stop, true);
			break;
		}
	}
	complete(&run->polling_ended);
	return 0;
}

static int spin_up(struct run *run)
{
	struct task_struct *ringing;
	struct task_struct *polling;

	init_completion(&run->ringing_ended);
	init_completion(&run->polling_ended);
	ringing = kthread_create(ring, run, "hwperf-ring");
	if (IS_ERR(ringing))
		return PTR_ERR(ringing);
	polling = kthread_create(poll, run, "hwperf-poll");
	if (IS_ERR(polling)) {
		/* It has not begun, so it ends without a step. */
		kthread_stop(ringing);
		return PTR_ERR(polling);
	}
	kthread_bind(ringing, run->load->submit_cpu);
	kthread_bind(polling, run->load->poll_cpu);
	run->from = get_cycles() + (u64)run->load->ramp_ms * tsc_khz;
	run->until = run->from + (u64)run->load->ms * tsc_khz;
	run->polled->begin = run->from;
	run->polled->end = run->from;
	wake_up_process(polling);
	wake_up_process(ringing);
	/* A signal ends the run, not the wait for its end. */
	if (wait_for_completion_interruptible(&run->polling_ended)) {
		WRITE_ONCE(run->stop, true);
		run->err = -EINTR;
		wait_for_completion(&run->polling_ended);
	}
	wait_for_completion(&run->ringing_ended);
	if (READ_ONCE(run->controller->removed) && !run->err)
		return -ENODEV;
	return run->err;
}

int hwperf_run(struct hwperf_controller *controller,
	       const struct hwperf_load *load, struct hwperf_found *found)
{
	struct run *run;
	u32 job;
	int err = -ENOMEM;

	memset(found, 0, sizeof(*found));
	found->least = U64_MAX;
	found->classes = kvcalloc(HWPERF_CLASSES, sizeof(u64), GFP_KERNEL);
	run = kzalloc(sizeof(*run), GFP_KERNEL);
	if (!run || !found->classes)
		goto free;
	run->queues = kcalloc(load->jobs, sizeof(*run->queues), GFP_KERNEL);
	if (!run->queues)
		goto free;
	run->controller = controller;
	run->load = load;
	run->polled = found;
	err = 0;
	for (job = 0; job < load->jobs && !err; job++) {
		struct hwperf_queue *queue = hwperf_queue_open(controller, load, job);

		if (IS_ERR(queue))
			err = PTR_ERR(queue);
		else
			run->queues[job] = queue;
	}
	if (!err)
		err = spin_up(run);
	/* Closing a queue waits for what is under way on it, or takes the controller down. */
	for (job = 0; job < load->jobs; job++) {
		if (run->queues[job])
			hwperf_queue_close(run->queues[job]);
	}
	found->submitted = run->rung.submitted;
	found->doorbells = run->rung.doorbells;
	kfree(run->queues);
free:
	kfree(run);
	if (err) {
		kvfree(found->classes);
		found->classes = NULL;
	}
	return err;
}
