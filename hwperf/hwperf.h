/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a drive gives with no software in the way.
 *
 * pci.c         takes a function and gives it back
 * queue.c       slots with a command each: places, stamps, what is counted
 * run.c         a run: one thread rings, another one polls and counts
 * words.c       what a run is asked for, in words
 * report.c      what the drive is and what the run found, as JSON
 * debugfs.c     the files by which both go
 *
 * What a kind of controller does its own way is behind struct hwperf_ops:
 * nvme*.c for NVMe, mpi*.c for SAS controllers that speak MPI 2.5 or 2.6.
 */
#ifndef HWPERF_H
#define HWPERF_H

#include <linux/completion.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/timex.h>
#include <linux/types.h>

#define HWPERF_PAGE		4096
#define HWPERF_BLOCK_MAX	(2 << 20)
#define HWPERF_JOBS_MAX		64
#define HWPERF_DEPTH_MAX	4096
/* A command that takes longer has failed. */
#define HWPERF_TIMEOUT_MS	10000

/* Latencies in cycles: 32 classes for each power of two, so 3 % wide. */
#define HWPERF_CLASS_BITS	5
#define HWPERF_CLASSES		((64 - HWPERF_CLASS_BITS + 1) << HWPERF_CLASS_BITS)

struct hwperf_controller {
	const struct hwperf_ops *ops;
	/* What the kind of controller keeps: ops->controller_bytes of it. */
	void *own;
	struct pci_dev *pdev;
	void __iomem *registers;
	size_t register_bytes;
	bool enabled;
	/* Said by enable: what it is, which drive of it is used, and how much it takes. */
	char model[41];
	char serial[33];
	char unit[24];
	u32 block_shift;
	u64 blocks;
	u32 command_bytes_max;
	u32 queues;
	u32 depth_max;
	/* Commands under way in all queues. */
	u32 slots_max;
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
	/* Where its command goes. */
	u64 lba;
	/* When its doorbell was rung, cycles. */
	u64 begin;
	bool is_out;
};

/* What one job has under way. */
struct hwperf_queue {
	struct hwperf_controller *controller;
	/* What the kind of controller keeps: ops->queue_bytes of it. */
	void *own;
	u32 job;
	u32 depth;
	u32 block_bytes;
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
};

/* What was counted. */
struct hwperf_found {
	u64 submitted;
	u64 doorbells;
	u64 completion_doorbells;
	u64 completed;
	u64 errors;
	u32 first_error;
	u64 verified;
	u64 wrong;
	u64 strangers;
	/* After the ramp. */
	u64 counted;
	/* Of those: the clock was less at the end than at the begin. Counted as 0. */
	u64 backwards;
	u64 begin;
	u64 end;
	u64 sum;
	u64 least;
	u64 most;
	u64 *classes;
};

/* A command that has ended: whose, and how. 0 is well; else each kind says what it has. */
struct hwperf_end {
	u32 slot;
	u32 status;
};

/* A completion that is none of the queue's slots. */
#define HWPERF_STRANGER	U32_MAX

/*
 * What a kind of controller does its own way. While a run goes on, submit is
 * called by one thread, and poll and tell by another one; all others before
 * and after it.
 */
struct hwperf_ops {
	const char *name;
	u32 class;
	u16 vendor;
	u32 dma_bits;
	size_t controller_bytes;
	size_t queue_bytes;
	/* Registers that there must be. */
	size_t register_bytes;
	/* Brings the controller up, and says what it is. It is down after an error. */
	int (*enable)(struct hwperf_controller *controller);
	/* Takes it down: it touches no memory after this, or has no bus mastering. */
	void (*disable)(struct hwperf_controller *controller);
	/* What a queue needs besides its slots. After an error it is closed. */
	int (*open)(struct hwperf_queue *queue);
	/* Builds the command of a slot, whose data is one piece for the controller. */
	int (*build)(struct hwperf_queue *queue, const struct hwperf_load *load,
		     u16 slot);
	/* No command of the queue is under way after this. */
	void (*close)(struct hwperf_queue *queue);
	/* Sends a slot's command to its place, by one doorbell. */
	void (*submit)(struct hwperf_queue *queue, u16 slot);
	/* The next command that has ended; false: none. */
	bool (*poll)(struct hwperf_queue *queue, struct hwperf_end *end);
	/* Tells the controller what was polled. */
	void (*tell)(struct hwperf_queue *queue);
};

extern const struct hwperf_ops hwperf_nvme_ops;
extern const struct hwperf_ops hwperf_mpi_ops;

/* The last step before a doorbell: from here on the command takes time. */
static inline void hwperf_begin(struct hwperf_slot *slot)
{
	slot->is_out = true;
	slot->begin = get_cycles();
}

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
char *hwperf_about(const struct hwperf_controller *controller);
char *hwperf_report(const struct hwperf_controller *controller,
		    const struct hwperf_load *load,
		    const struct hwperf_found *found);
u32 hwperf_class(u64 cycles);

void hwperf_copy_text(char *to, const u8 *from, size_t len);

/* debugfs.c */
void hwperf_debugfs_begin(void);
void hwperf_debugfs_end(void);
void hwperf_debugfs_add(struct hwperf_controller *controller);
void hwperf_debugfs_remove(struct hwperf_controller *controller);

#endif
