// SPDX-License-Identifier: GPL-2.0-only
/*
 * An I/O queue pair with a command built for each slot. What is left for a
 * run: the next address, 64 bytes to the tail of the ring, and the doorbell.
 *
 * Always holds: fewer commands are under way than the ring has entries, so no
 * ring is ever full; a command's identifier is its slot's number; the
 * completion queue has no interrupt.
 */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "hwperf_nvme.h"

static int create(struct hwperf_controller *controller,
		  struct hwperf_nvme_queue *own)
{
	u32 entries = own->rings.entries;
	struct nvme_command command = {
		.create_cq = {
			.opcode = nvme_admin_create_cq,
			.prp1 = cpu_to_le64(own->rings.completions_dma),
			.cqid = cpu_to_le16(own->number),
			.qsize = cpu_to_le16(entries - 1),
			/* Without NVME_CQ_IRQ_ENABLED: it is polled. */
			.cq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG),
		},
	};
	int err;

	err = hwperf_nvme_admin(controller, &command, NULL);
	if (err)
		return err;
	own->has_completion_queue = true;
	memset(&command, 0, sizeof(command));
	command.create_sq.opcode = nvme_admin_create_sq;
	command.create_sq.prp1 = cpu_to_le64(own->rings.submissions_dma);
	command.create_sq.sqid = cpu_to_le16(own->number);
	command.create_sq.qsize = cpu_to_le16(entries - 1);
	command.create_sq.sq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG);
	command.create_sq.cqid = cpu_to_le16(own->number);
	err = hwperf_nvme_admin(controller, &command, NULL);
	if (!err)
		own->has_submission_queue = true;
	return err;
}

static int delete(struct hwperf_queue *queue, u8 opcode)
{
	struct hwperf_nvme_queue *own = queue->own;
	struct nvme_command command = {
		.delete_queue = {
			.opcode = opcode,
			.qid = cpu_to_le16(own->number),
		},
	};

	return hwperf_nvme_admin(queue->controller, &command, NULL);
}

int hwperf_nvme_open(struct hwperf_queue *queue)
{
	struct hwperf_controller *controller = queue->controller;
	struct hwperf_nvme_queue *own = queue->own;
	struct device *dev = &controller->pdev->dev;
	int err;

	own->number = queue->job + 1;
	own->lists = kvcalloc(queue->depth, sizeof(*own->lists), GFP_KERNEL);
	own->commands = dma_alloc_coherent(dev,
					   queue->depth * sizeof(*own->commands),
					   &own->commands_dma, GFP_KERNEL);
	if (!own->lists || !own->commands)
		return -ENOMEM;
	err = hwperf_nvme_rings_alloc(controller, &own->rings, own->number,
				      queue->depth + 1);
	return err ?: create(controller, own);
}

int hwperf_nvme_build(struct hwperf_queue *queue,
		      const struct hwperf_load *load, u16 number)
{
	struct hwperf_controller *controller = queue->controller;
	struct hwperf_nvme *nvme = controller->own;
	struct hwperf_nvme_queue *own = queue->own;
	struct hwperf_nvme_list *list = &own->lists[number];
	struct nvme_command *command = &own->commands[number];
	dma_addr_t data = queue->slots[number].data_dma;
	u32 pages = DIV_ROUND_UP(load->block_bytes, HWPERF_PAGE);
	dma_addr_t second = 0;
	u32 page;

	if (pages == 2)
		second = data + HWPERF_PAGE;
	if (pages > 2) {
		list->prps = dma_alloc_coherent(&controller->pdev->dev,
						HWPERF_PAGE, &list->prps_dma,
						GFP_KERNEL);
		if (!list->prps)
			return -ENOMEM;
		for (page = 1; page < pages; page++)
			list->prps[page - 1] =
				cpu_to_le64(data + page * HWPERF_PAGE);
		second = list->prps_dma;
	}
	command->rw.opcode = load->verb == HWPERF_WRITE ? nvme_cmd_write :
							   nvme_cmd_read;
	command->rw.command_id = number;
	command->rw.nsid = cpu_to_le32(nvme->nsid);
	command->rw.dptr.prp1 = cpu_to_le64(data);
	command->rw.dptr.prp2 = cpu_to_le64(second);
	command->rw.length = cpu_to_le16((load->block_bytes >>
					  controller->block_shift) - 1);
	return 0;
}

void hwperf_nvme_close(struct hwperf_queue *queue)
{
	struct hwperf_controller *controller = queue->controller;
	struct hwperf_nvme_queue *own = queue->own;
	struct device *dev = &controller->pdev->dev;
	bool is_quiet = true;
	u32 number;

	/* When the deletions have completed the controller is done with the memory (Base 5.6). */
	if (own->has_submission_queue)
		is_quiet = !delete(queue, nvme_admin_delete_sq);
	if (own->has_completion_queue && is_quiet)
		is_quiet = !delete(queue, nvme_admin_delete_cq);
	if (!is_quiet)
		hwperf_nvme_disable(controller);
	for (number = 0; own->lists && number < queue->depth; number++) {
		struct hwperf_nvme_list *list = &own->lists[number];

		if (list->prps)
			dma_free_coherent(dev, HWPERF_PAGE, list->prps,
					  list->prps_dma);
	}
	hwperf_nvme_rings_free(controller, &own->rings);
	if (own->commands)
		dma_free_coherent(dev, queue->depth * sizeof(*own->commands),
				  own->commands, own->commands_dma);
	kvfree(own->lists);
}

void hwperf_nvme_submit(struct hwperf_queue *queue, u16 number)
{
	struct hwperf_nvme_queue *own = queue->own;
	struct hwperf_nvme_rings *rings = &own->rings;
	struct nvme_command *command = &own->commands[number];
	struct hwperf_slot *slot = &queue->slots[number];

	command->rw.slba = cpu_to_le64(slot->lba);
	rings->submissions[rings->tail] = *command;
	if (++rings->tail == rings->entries)
		rings->tail = 0;
	hwperf_begin(slot);
	/* Orders all of the above before the doorbell. */
	writel(rings->tail, rings->submission_doorbell);
}

bool hwperf_nvme_poll(struct hwperf_queue *queue, struct hwperf_end *end)
{
	struct hwperf_nvme_queue *own = queue->own;
	struct hwperf_nvme_rings *rings = &own->rings;
	struct nvme_completion *entry = &rings->completions[rings->head];
	u16 status = le16_to_cpu(READ_ONCE(entry->status));

	if ((status & 1) != rings->phase)
		return false;
	/* The rest of the entry, and the data, after the phase. */
	dma_rmb();
	end->slot = entry->command_id;
	end->status = status >> 1 & 0x7ff;
	if (++rings->head == rings->entries) {
		rings->head = 0;
		rings->phase ^= 1;
	}
	return true;
}

void hwperf_nvme_tell(struct hwperf_queue *queue)
{
	struct hwperf_nvme_queue *own = queue->own;

	writel(own->rings.head, own->rings.completion_doorbell);
}
