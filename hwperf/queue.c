// SPDX-License-Identifier: GPL-2.0-only
/*
 * An I/O queue pair with a command built for each slot. What is left for a
 * run: the next address, 64 bytes to the tail of the ring, and the doorbell.
 *
 * Always holds: fewer commands are under way than the ring has entries, so no
 * ring is ever full; a slot has at most one command under way, whose
 * identifier is the slot's number; the completion queue has no interrupt.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/timex.h>

#include "hwperf.h"

/* In the first bytes of each logical block, where blocks are verified. */
#define STAMP	0x6877706572660000ULL

static int create(struct hwperf_queue *queue)
{
	struct hwperf_controller *controller = queue->controller;
	u32 entries = queue->rings.entries;
	struct nvme_command command = {
		.create_cq = {
			.opcode = nvme_admin_create_cq,
			.prp1 = cpu_to_le64(queue->rings.completions_dma),
			.cqid = cpu_to_le16(queue->number),
			.qsize = cpu_to_le16(entries - 1),
			/* Without NVME_CQ_IRQ_ENABLED: it is polled. */
			.cq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG),
		},
	};
	int err;

	err = hwperf_admin(controller, &command, NULL);
	if (err)
		return err;
	queue->has_completion_queue = true;
	memset(&command, 0, sizeof(command));
	command.create_sq.opcode = nvme_admin_create_sq;
	command.create_sq.prp1 = cpu_to_le64(queue->rings.submissions_dma);
	command.create_sq.sqid = cpu_to_le16(queue->number);
	command.create_sq.qsize = cpu_to_le16(entries - 1);
	command.create_sq.sq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG);
	command.create_sq.cqid = cpu_to_le16(queue->number);
	err = hwperf_admin(controller, &command, NULL);
	if (!err)
		queue->has_submission_queue = true;
	return err;
}

static int delete(struct hwperf_queue *queue, u8 opcode)
{
	struct nvme_command command = {
		.delete_queue = {
			.opcode = opcode,
			.qid = cpu_to_le16(queue->number),
		},
	};

	return hwperf_admin(queue->controller, &command, NULL);
}

/* Builds the command of a slot, for a buffer that is one piece for the controller. */
static int build(struct hwperf_queue *queue, const struct hwperf_load *load,
		 u16 number)
{
	struct hwperf_controller *controller = queue->controller;
	struct device *dev = &controller->pdev->dev;
	struct hwperf_slot *slot = &queue->slots[number];
	struct nvme_command *command = &queue->commands[number];
	u32 pages = DIV_ROUND_UP(load->block_bytes, HWPERF_PAGE);
	dma_addr_t second = 0;
	u32 page;

	slot->data = dma_alloc_coherent(dev, pages * HWPERF_PAGE,
					&slot->data_dma, GFP_KERNEL);
	if (!slot->data)
		return -ENOMEM;
	if (load->verb == HWPERF_WRITE)
		get_random_bytes(slot->data, load->block_bytes);
	if (pages == 2)
		second = slot->data_dma + HWPERF_PAGE;
	if (pages > 2) {
		slot->prps = dma_alloc_coherent(dev, HWPERF_PAGE,
						&slot->prps_dma, GFP_KERNEL);
		if (!slot->prps)
			return -ENOMEM;
		for (page = 1; page < pages; page++)
			slot->prps[page - 1] = cpu_to_le64(slot->data_dma +
							   page * HWPERF_PAGE);
		second = slot->prps_dma;
	}
	command->rw.opcode = load->verb == HWPERF_WRITE ? nvme_cmd_write :
							   nvme_cmd_read;
	command->rw.command_id = number;
	command->rw.nsid = cpu_to_le32(controller->nsid);
	command->rw.dptr.prp1 = cpu_to_le64(slot->data_dma);
	command->rw.dptr.prp2 = cpu_to_le64(second);
	command->rw.length = cpu_to_le16((load->block_bytes >>
					  controller->block_shift) - 1);
	queue->free[number] = number;
	return 0;
}

struct hwperf_queue *hwperf_queue_open(struct hwperf_controller *controller,
				       const struct hwperf_load *load, u32 job)
{
	struct device *dev = &controller->pdev->dev;
	u64 blocks = controller->blocks >>
		     (ilog2(load->block_bytes) - controller->block_shift);
	struct hwperf_queue *queue;
	int err = -ENOMEM;
	u32 slot;

	queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	if (!queue)
		return ERR_PTR(-ENOMEM);
	queue->controller = controller;
	queue->number = job + 1;
	queue->depth = load->depth;
	queue->block_bytes = load->block_bytes;
	queue->free_mask = roundup_pow_of_two(load->depth) - 1;
	queue->free_tail = load->depth;
	queue->count = load->random ? blocks : blocks / load->jobs;
	queue->first = load->random ? 0 : job * queue->count;
	/* Never 0, from which xorshift does not move. */
	queue->random = (load->seed + job) * 0x9e3779b97f4a7c15ULL | 1;
	queue->slots = kvcalloc(load->depth, sizeof(*queue->slots), GFP_KERNEL);
	queue->free = kvcalloc(queue->free_mask + 1, sizeof(*queue->free),
			       GFP_KERNEL);
	queue->commands = dma_alloc_coherent(dev,
					     load->depth * sizeof(*queue->commands),
					     &queue->commands_dma, GFP_KERNEL);
	if (!queue->slots || !queue->free || !queue->commands)
		goto close;
	err = hwperf_rings_alloc(controller, &queue->rings, queue->number,
				 load->depth + 1);
	if (err)
		goto close;
	for (slot = 0; slot < load->depth; slot++) {
		err = build(queue, load, slot);
		if (err)
			goto close;
	}
	err = create(queue);
	if (err)
		goto close;
	return queue;

close:
	hwperf_queue_close(queue);
	return ERR_PTR(err);
}

void hwperf_queue_close(struct hwperf_queue *queue)
{
	struct hwperf_controller *controller = queue->controller;
	struct device *dev = &controller->pdev->dev;
	u32 pages = DIV_ROUND_UP(queue->block_bytes, HWPERF_PAGE);
	bool is_quiet = true;
	u32 number;

	/* When the deletions have completed the controller is done with the memory (Base 5.6). */
	if (queue->has_submission_queue)
		is_quiet = !delete(queue, nvme_admin_delete_sq);
	if (queue->has_completion_queue && is_quiet)
		is_quiet = !delete(queue, nvme_admin_delete_cq);
	if (!is_quiet)
		hwperf_disable(controller);
	for (number = 0; queue->slots && number < queue->depth; number++) {
		struct hwperf_slot *slot = &queue->slots[number];

		if (slot->data)
			dma_free_coherent(dev, pages * HWPERF_PAGE, slot->data,
					  slot->data_dma);
		if (slot->prps)
			dma_free_coherent(dev, HWPERF_PAGE, slot->prps,
					  slot->prps_dma);
	}
	hwperf_rings_free(controller, &queue->rings);
	if (queue->commands)
		dma_free_coherent(dev, queue->depth * sizeof(*queue->commands),
				  queue->commands, queue->commands_dma);
	kvfree(queue->free);
	kvfree(queue->slots);
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

static void stamp(struct hwperf_queue *queue, struct hwperf_slot *slot, u64 lba)
{
	u32 block = 1 << queue->controller->block_shift;
	u32 at;

	for (at = 0; at < queue->block_bytes; at += block)
		*(__le64 *)(slot->data + at) = cpu_to_le64(stamp_of(lba++));
}

static void verify(struct hwperf_queue *queue, struct hwperf_slot *slot,
		   u64 lba, struct hwperf_found *found)
{
	u32 block = 1 << queue->controller->block_shift;
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
	struct hwperf_rings *rings = &queue->rings;
	struct nvme_command *command;
	struct hwperf_slot *slot;
	u16 number;
	u64 lba;

	/* Pairs with the release in hwperf_queue_reap: the slot is free. */
	if (queue->free_head == smp_load_acquire(&queue->free_tail))
		return false;
	number = queue->free[queue->free_head & queue->free_mask];
	WRITE_ONCE(queue->free_head, queue->free_head + 1);
	slot = &queue->slots[number];
	command = &queue->commands[number];
	lba = next_place(queue, load->random) <<
	      (ilog2(load->block_bytes) - queue->controller->block_shift);
	command->rw.slba = cpu_to_le64(lba);
	if (load->verify && load->verb == HWPERF_WRITE)
		stamp(queue, slot, lba);
	rings->submissions[rings->tail] = *command;
	if (++rings->tail == rings->entries)
		rings->tail = 0;
	slot->is_out = true;
	slot->begin = get_cycles();
	/* Orders all of the above before the doorbell. */
	writel(rings->tail, rings->submission_doorbell);
	found->submitted++;
	found->doorbells++;
	return true;
}

/* Takes what has completed; how many. Latencies count that began after `from`. */
u32 hwperf_queue_reap(struct hwperf_queue *queue,
		      const struct hwperf_load *load,
		      struct hwperf_found *found, u64 from)
{
	struct hwperf_rings *rings = &queue->rings;
	u32 taken = 0;
	u64 now = 0;

	for (;;) {
		struct nvme_completion *entry = &rings->completions[rings->head];
		u16 status = le16_to_cpu(READ_ONCE(entry->status));
		struct hwperf_slot *slot;
		u16 number;

		if ((status & 1) != rings->phase)
			break;
		/* The rest of the entry, and the data, after the phase. */
		dma_rmb();
		if (!taken++)
			now = get_cycles();
		number = entry->command_id;
		if (++rings->head == rings->entries) {
			rings->head = 0;
			rings->phase ^= 1;
		}
		if (number >= queue->depth || !queue->slots[number].is_out) {
			found->strangers++;
			continue;
		}
		slot = &queue->slots[number];
		slot->is_out = false;
		found->completed++;
		status >>= 1;
		if (status & 0x7ff) {
			if (!found->errors++)
				found->first_error = status;
		} else if (slot->begin >= from) {
			u64 cycles = now - slot->begin;

			found->counted++;
			found->sum += cycles;
			found->least = min(found->least, cycles);
			found->most = max(found->most, cycles);
			found->classes[hwperf_class(cycles)]++;
			found->end = now;
		}
		if (load->verify && load->verb == HWPERF_READ)
			verify(queue, slot,
			       le64_to_cpu(queue->commands[number].rw.slba),
			       found);
		queue->free[queue->free_tail & queue->free_mask] = number;
		/* Pairs with the acquire in hwperf_queue_submit. */
		smp_store_release(&queue->free_tail, queue->free_tail + 1);
	}
	if (taken) {
		writel(rings->head, rings->completion_doorbell);
		found->completion_doorbells++;
	}
	return taken;
}
