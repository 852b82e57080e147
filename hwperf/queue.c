// SPDX-License-Identifier: GPL-2.0-only
/*
 * The slots of one job, each with a buffer and a command that is built before
 * the run: where the next I/O goes, what is stamped and checked, what counts.
 *
 * Always holds: a slot has at most one command under way.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/timex.h>

#include "hwperf.h"

/* In the first bytes of each logical block, where blocks are verified. */
#define STAMP	0x6877706572660000ULL

/* Gives a slot its data and its command. */
static int build(struct hwperf_queue *queue, const struct hwperf_load *load,
		 u16 number)
{
	struct hwperf_controller *controller = queue->controller;
	struct hwperf_slot *slot = &queue->slots[number];

	slot->data = dma_alloc_coherent(&controller->pdev->dev,
					PAGE_ALIGN(load->block_bytes),
					&slot->data_dma, GFP_KERNEL);
	if (!slot->data)
		return -ENOMEM;
	if (load->verb == HWPERF_WRITE)
		get_random_bytes(slot->data, load->block_bytes);
	queue->free[number] = number;
	return controller->ops->build(queue, load, number);
}

struct hwperf_queue *hwperf_queue_open(struct hwperf_controller *controller,
				       const struct hwperf_load *load, u32 job)
{
	const struct hwperf_ops *ops = controller->ops;
	u64 blocks = controller->blocks >>
		     (ilog2(load->block_bytes) - controller->block_shift);
	struct hwperf_queue *queue;
	int err = -ENOMEM;
	u32 slot;

	queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	if (!queue)
		return ERR_PTR(-ENOMEM);
	queue->controller = controller;
	queue->job = job;
	queue->depth = load->depth;
	queue->block_bytes = load->block_bytes;
	queue->free_mask = roundup_pow_of_two(load->depth) - 1;
	queue->free_tail = load->depth;
	queue->count = load->random ? blocks : blocks / load->jobs;
	queue->first = load->random ? 0 : job * queue->count;
	/* Never 0, from which xorshift does not move. */
	queue->random = (load->seed + job) * 0x9e3779b97f4a7c15ULL | 1;
	queue->own = kzalloc(ops->queue_bytes, GFP_KERNEL);
	queue->slots = kvcalloc(load->depth, sizeof(*queue->slots), GFP_KERNEL);
	queue->free = kvcalloc(queue->free_mask + 1, sizeof(*queue->free),
			       GFP_KERNEL);
	if (queue->own && queue->slots && queue->free)
		err = ops->open(queue);
	for (slot = 0; slot < load->depth && !err; slot++)
		err = build(queue, load, slot);
	if (!err)
		return queue;
	hwperf_queue_close(queue);
	return ERR_PTR(err);
}

void hwperf_queue_close(struct hwperf_queue *queue)
{
	struct hwperf_controller *controller = queue->controller;
	u32 number;

	/* Nothing is under way after this: the memory is free. */
	if (queue->own)
		controller->ops->close(queue);
	for (number = 0; queue->slots && number < queue->depth; number++) {
		struct hwperf_slot *slot = &queue->slots[number];

		if (slot->data)
			dma_free_coherent(&controller->pdev->dev,
					  PAGE_ALIGN(queue->block_bytes),
					  slot->data, slot->data_dma);
	}
	kvfree(queue->free);
	kvfree(queue->slots);
	kfree(queue->own);
	kfree(queue);
}

/* The next place, in blocks of the load. */
static u64 next_place(struct hwperf_queue *queue, bool random)
{
	u64 place = queue->next;

	if (random) {
		queue->random ^= queue->random << 13;
		queue->random ^= queue->random >> 7;
		queue->random ^= queue->random << 17;
		/* The upper half of a product: even enough, and no division. */
		return mul_u64_u64_shr(queue->random, queue->count, 64);
	}
	queue->next = place + 1 == queue->count ? 0 : place + 1;
	return queue->first + place;
}

static u64 stamp_of(u64 lba)
{
	return lba ^ STAMP;
}

static void stamp(struct hwperf_queue *queue, struct hwperf_slot *slot)
{
	u32 block = 1 << queue->controller->block_shift;
	u64 lba = slot->lba;
	u32 at;

	for (at = 0; at < queue->block_bytes; at += block)
		*(__le64 *)(slot->data + at) = cpu_to_le64(stamp_of(lba++));
}

static void verify(struct hwperf_queue *queue, struct hwperf_slot *slot,
		   struct hwperf_found *found)
{
	u32 block = 1 << queue->controller->block_shift;
	u64 lba = slot->lba;
	u32 at;

	for (at = 0; at < queue->block_bytes; at += block, lba++) {
		__le64 *there = slot->data + at;

		if (le64_to_cpu(*there) != stamp_of(lba))
			found->wrong++;
		found->verified++;
		/* What is not read again is not right again. */
		*there = 0;
	}
}

/* Rings for one free slot; false: all are under way. */
bool hwperf_queue_submit(struct hwperf_queue *queue,
			 const struct hwperf_load *load,
			 struct hwperf_found *found)
{
	struct hwperf_controller *controller = queue->controller;
	struct hwperf_slot *slot;
	u16 number;

	/* Pairs with the release in hwperf_queue_reap: the slot is free. */
	if (queue->free_head == smp_load_acquire(&queue->free_tail))
		return false;
	number = queue->free[queue->free_head & queue->free_mask];
	WRITE_ONCE(queue->free_head, queue->free_head + 1);
	slot = &queue->slots[number];
	slot->lba = next_place(queue, load->random) <<
		    (ilog2(load->block_bytes) - controller->block_shift);
	if (load->verify && load->verb == HWPERF_WRITE)
		stamp(queue, slot);
	controller->ops->submit(queue, number);
	found->submitted++;
	found->doorbells++;
	return true;
}

static void count(struct hwperf_found *found, u64 begin, u64 now)
{
	u64 cycles = now - begin;

	/* The TSCs of two processors may differ by more than a command takes. */
	if (now < begin) {
		found->backwards++;
		cycles = 0;
	}
	found->counted++;
	found->sum += cycles;
	found->least = min(found->least, cycles);
	found->most = max(found->most, cycles);
	found->classes[hwperf_class(cycles)]++;
	found->end = max(found->end, now);
}

/* Takes what has completed; how many. Latencies count that began after `from`. */
u32 hwperf_queue_reap(struct hwperf_queue *queue,
		      const struct hwperf_load *load,
		      struct hwperf_found *found, u64 from)
{
	const struct hwperf_ops *ops = queue->controller->ops;
	struct hwperf_end end;
	u32 taken = 0;

	while (ops->poll(queue, &end)) {
		/*
		 * One look at the clock for each: the other thread rings all the
		 * while, and what it sends now may be the next that is taken here.
		 * Ordered: not before the completion was read.
		 */
		u64 now = rdtsc_ordered();
		struct hwperf_slot *slot;

		taken++;
		if (end.slot >= queue->depth || !queue->slots[end.slot].is_out) {
			found->strangers++;
			continue;
		}
		slot = &queue->slots[end.slot];
		slot->is_out = false;
		found->completed++;
		if (end.status) {
			if (!found->errors++)
				found->first_error = end.status;
		} else if (slot->begin >= from) {
			count(found, slot->begin, now);
		}
		if (load->verify && load->verb == HWPERF_READ)
			verify(queue, slot, found);
		queue->free[queue->free_tail & queue->free_mask] = end.slot;
		/* Pairs with the acquire in hwperf_queue_submit. */
		smp_store_release(&queue->free_tail, queue->free_tail + 1);
	}
	if (taken) {
		ops->tell(queue);
		found->completion_doorbells++;
	}
	return taken;
}
