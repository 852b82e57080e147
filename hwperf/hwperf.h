/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What an NVMe drive gives with no software in the way.
 *
 * pci.c         takes a function and gives it back
 * controller.c  enables the controller, its admin queue, what it says of itself
 * queue.c       an I/O queue pair with a command built for each slot
 * run.c         a run: one thread rings, another one polls and counts
 * words.c       what a run is asked for, in words
 * report.c      what it found, as JSON
 * debugfs.c     the files by which both go
 */
#ifndef HWPERF_H
#define HWPERF_H

#include <linux/completion.h>
#include <linux/mutex.h>
#include <linux/nvme.h>
#include <linux/pci.h>
#include <linux/types.h>

#define HWPERF_PAGE		4096
#define HWPERF_BLOCK_MAX	(2 << 20)
#define HWPERF_JOBS_MAX		64
#define HWPERF_DEPTH_MAX	4096
#define HWPERF_ADMIN_ENTRIES	8
/* A command that takes longer has failed. */
#define HWPERF_TIMEOUT_MS	10000

/* Latencies in cycles: 32 classes for each power of two, so 3 % wide. */
#define HWPERF_CLASS_BITS	5
#define HWPERF_CLASSES		((64 - HWPERF_CLASS_BITS + 1) << HWPERF_CLASS_BITS)

/* A pair of rings, in memory that the controller reaches. */
struct hwperf_rings {
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

struct hwperf_controller {
	struct pci_dev *pdev;
	void __iomem *registers;
	u64 capabilities;
	u32 stride;
	struct hwperf_rings admin;
	u16 admin_cid;
	bool enabled;
	/* One page for what the admin queue moves. */
	void *page;
	dma_addr_t page_dma;
	char model[41];
	char serial[21];
	u32 nsid;
	u32 block_shift;
	u64 blocks;
	u32 command_bytes_max;
	u32 queues;
	struct dentry *folder;
	/* One run at a time, and none while the function is given back. */
	struct mutex lock;
	bool removed;
	char *report;
};

enum hwperf_verb {
	HWPERF_READ,
	HWPERF_WRITE,
};

/* What a run is asked for. */
struct hwperf_load {
	enum hwperf_verb verb;
	bool random;
	bool allow_writes;
	bool verify;
	u32 block_bytes;
	u32 depth;
	u32 jobs;
	u32 ms;
	u32 ramp_ms;
	u32 submit_cpu;
	u32 poll_cpu;
	u64 ios;
	u64 seed;
};

struct hwperf_slot {
	void *data;
	dma_addr_t data_dma;
	__le64 *prps;
	dma_addr_t prps_dma;
	/* When its doorbell was rung, cycles. */
	u64 begin;
	bool is_out;
};

/* An I/O queue pair of one job. */
struct hwperf_queue {
	struct hwperf_controller *controller;
	struct hwperf_rings rings;
	u16 number;
	u32 depth;
	u32 block_bytes;
	/* A command for each slot, built before the run. */
	struct nvme_command *commands;
	dma_addr_t commands_dma;
	struct hwperf_slot *slots;
	/* Slots that are free: the poller appends, the other thread takes. */
	u16 *free;
	u32 free_mask;
	u32 free_head;
	u32 free_tail;
	/* Where the I/Os go, in blocks of the load. */
	u64 first;
	u64 count;
	u64 next;
	u64 random;
	bool has_completion_queue;
	bool has_submission_queue;
};

/* What was counted. */
struct hwperf_found {
	u64 submitted;
	u64 doorbells;
	u64 completion_doorbells;
	u64 completed;
	u64 errors;
	u16 first_error;
	u64 verified;
	u64 wrong;
	u64 strangers;
	/* After the ramp. */
	u64 counted;
	u64 begin;
	u64 end;
	u64 sum;
	u64 least;
	u64 most;
	u64 *classes;
};

/* controller.c */
int hwperf_enable(struct hwperf_controller *controller);
void hwperf_disable(struct hwperf_controller *controller);
int hwperf_admin(struct hwperf_controller *controller,
		 struct nvme_command *command, u32 *result);
int hwperf_identify(struct hwperf_controller *controller, u32 nsid);
int hwperf_rings_alloc(struct hwperf_controller *controller,
		       struct hwperf_rings *rings, u16 number, u32 entries);
void hwperf_rings_free(struct hwperf_controller *controller,
		       struct hwperf_rings *rings);

/* queue.c */
struct hwperf_queue *hwperf_queue_open(struct hwperf_controller *controller,
				       const struct hwperf_load *load, u32 job);
void hwperf_queue_close(struct hwperf_queue *queue);
bool hwperf_queue_submit(struct hwperf_queue *queue,
			 const struct hwperf_load *load,
			 struct hwperf_found *found);
u32 hwperf_queue_reap(struct hwperf_queue *queue,
		      const struct hwperf_load *load,
		      struct hwperf_found *found, u64 from);

/* run.c */
int hwperf_run(struct hwperf_controller *controller,
	       const struct hwperf_load *load, struct hwperf_found *found);

/* words.c */
int hwperf_parse(char *text, struct hwperf_load *load);
int hwperf_check(const struct hwperf_controller *controller,
		 const struct hwperf_load *load);

/* report.c */
char *hwperf_report(const struct hwperf_controller *controller,
		    const struct hwperf_load *load,
		    const struct hwperf_found *found);
u32 hwperf_class(u64 cycles);

/* debugfs.c */
void hwperf_debugfs_begin(void);
void hwperf_debugfs_end(void);
void hwperf_debugfs_add(struct hwperf_controller *controller);
void hwperf_debugfs_remove(struct hwperf_controller *controller);

#endif
