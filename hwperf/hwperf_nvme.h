/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * NVMe controllers.
 *
 * nvme.c        the controller, its admin queue, what it says of itself
 * nvme_queue.c  an I/O queue pair for each job
 */
#ifndef HWPERF_NVME_H
#define HWPERF_NVME_H

#include <linux/nvme.h>

#include "hwperf.h"

/* A pair of rings, in memory that the controller reaches. */
struct hwperf_nvme_rings {
	struct nvme_command *submissions;
	struct nvme_completion *completions;
	dma_addr_t submissions_dma;
	dma_addr_t completions_dma;
	u32 __iomem *submission_doorbell;
	u32 __iomem *completion_doorbell;
	u32 entries;
	u32 tail;
	u32 head;
	u16 phase;
};

struct hwperf_nvme {
	u64 capabilities;
	u32 stride;
	u32 nsid;
	struct hwperf_nvme_rings admin;
	u16 admin_cid;
	/* One page for what the admin queue moves. */
	void *page;
	dma_addr_t page_dma;
};

/* Entries of a list of pages. */
struct hwperf_nvme_list {
	__le64 *prps;
	dma_addr_t prps_dma;
};

struct hwperf_nvme_queue {
	struct hwperf_nvme_rings rings;
	u16 number;
	/* A command for each slot, and the list of its pages. */
	struct nvme_command *commands;
	dma_addr_t commands_dma;
	struct hwperf_nvme_list *lists;
	bool has_completion_queue;
	bool has_submission_queue;
};

/* nvme.c */
int hwperf_nvme_admin(struct hwperf_controller *controller,
		      struct nvme_command *command, u32 *result);
void hwperf_nvme_disable(struct hwperf_controller *controller);
int hwperf_nvme_rings_alloc(struct hwperf_controller *controller,
			    struct hwperf_nvme_rings *rings, u16 number,
			    u32 entries);
void hwperf_nvme_rings_free(struct hwperf_controller *controller,
			    struct hwperf_nvme_rings *rings);

/* nvme_queue.c */
int hwperf_nvme_open(struct hwperf_queue *queue);
int hwperf_nvme_build(struct hwperf_queue *queue,
		      const struct hwperf_load *load, u16 number);
void hwperf_nvme_close(struct hwperf_queue *queue);
void hwperf_nvme_submit(struct hwperf_queue *queue, u16 number);
bool hwperf_nvme_poll(struct hwperf_queue *queue, struct hwperf_end *end);
void hwperf_nvme_tell(struct hwperf_queue *queue);

#endif
