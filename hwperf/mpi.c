// SPDX-License-Identifier: GPL-2.0-only
/*
 * A SAS controller that speaks MPI 2.5 or 2.6: made ready, asked for its facts
 * through the doorbell, given its queues, reset in the end.
 *
 * Always holds: the controller has memory only between its initialisation and
 * its next reset; all its interrupts are masked.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "hwperf_mpi.h"

#define STEP_MS		5000
#define READY_MS	20000
#define SETTLE_MS	50
/* Looks at the diagnostic register until the keys have opened it. */
#define OPEN_TRIES	20
/* Reply frames beside those that requests can need. */
#define SPARE_REPLIES	64

static u32 read_register(struct hwperf_controller *controller, u32 offset)
{
	const struct hwperf_mpi *mpi = controller->own;
	bool is_state = offset == MPI_DOORBELL || offset == MPI_DIAGNOSTIC;
	u32 tries = !mpi->misreads ? 1 : is_state ? 30 : 3;
	u32 value;

	do {
		value = readl(controller->registers + offset);
	} while (!value && --tries);
	return value;
}

static void write_register(struct hwperf_controller *controller, u32 offset,
			   u32 value)
{
	writel(value, controller->registers + offset);
}

/* Waits for a register to have `value` in `mask`. */
static int wait_for(struct hwperf_controller *controller, u32 offset, u32 mask,
		    u32 value, unsigned int ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms) + 1;

	for (;;) {
		bool is_late = time_after(jiffies, end);
		u32 seen = read_register(controller, offset);

		if (seen == ~0U)
			return -ENODEV;
		if ((seen & mask) == value)
			return 0;
		if (is_late)
			return -ETIMEDOUT;
		usleep_range(50, 100);
	}
}

static int wait_ready(struct hwperf_controller *controller)
{
	return wait_for(controller, MPI_DOORBELL, MPI_STATE_MASK,
			MPI_STATE_READY, READY_MS);
}

/* The diagnostic reset, which a controller takes in whatever state it is. */
static int reset(struct hwperf_controller *controller)
{
	static const u8 keys[] = { 0x0, 0xf, 0x4, 0xb, 0x2, 0x7, 0xd };
	u32 value = 0;
	int tries, at, err;

	for (tries = 0; !(value & MPI_DIAGNOSTIC_OPEN); tries++) {
		if (tries == OPEN_TRIES)
			return -EIO;
		for (at = 0; at < ARRAY_SIZE(keys); at++)
			write_register(controller, MPI_WRITE_SEQUENCE, keys[at]);
		msleep(2 * SETTLE_MS);
		value = read_register(controller, MPI_DIAGNOSTIC);
		if (value == ~0U)
			return -ENODEV;
	}
	write_register(controller, MPI_DIAGNOSTIC, value | MPI_DIAGNOSTIC_RESET);
	/* A card that is being reset does not answer at all for a while. */
	msleep(SETTLE_MS);
	err = wait_for(controller, MPI_DIAGNOSTIC, MPI_DIAGNOSTIC_RESET, 0,
		       READY_MS);
	if (err)
		return err;
	value = read_register(controller, MPI_DIAGNOSTIC);
	write_register(controller, MPI_DIAGNOSTIC, value & ~MPI_DIAGNOSTIC_HOLD);
	write_register(controller, MPI_WRITE_SEQUENCE, 0);
	return wait_ready(controller);
}

/* The controller is ready for the handshake, and touches no memory after this. */
static int make_ready(struct hwperf_controller *controller)
{
	u32 state;

	write_register(controller, MPI_INTERRUPT_MASK, MPI_INTERRUPTS_ALL);
	state = read_register(controller, MPI_DOORBELL);
	if (state == ~0U)
		return -ENODEV;
	state &= MPI_STATE_MASK | MPI_DOORBELL_USED;
	if (state == MPI_STATE_READY)
		return 0;
	if (state == MPI_STATE_OPERATIONAL) {
		write_register(controller, MPI_DOORBELL, MPI_DOORBELL_RESET);
		if (!wait_ready(controller))
			return 0;
	}
	return reset(controller);
}

/* The controller has rung its bell: the word in the doorbell is its. */
static int wait_bell(struct hwperf_controller *controller)
{
	return wait_for(controller, MPI_INTERRUPT_STATUS, MPI_STATUS_DOORBELL,
			MPI_STATUS_DOORBELL, STEP_MS);
}

/* The controller has taken what was written to the doorbell. */
static int wait_taken(struct hwperf_controller *controller)
{
	return wait_for(controller, MPI_INTERRUPT_STATUS, MPI_STATUS_BUSY, 0,
			STEP_MS);
}

static int send(struct hwperf_controller *controller, const __le32 *request,
		u32 dwords)
{
	u32 at;
	int err;

	write_register(controller, MPI_INTERRUPT_STATUS, 0);
	write_register(controller, MPI_DOORBELL,
		       MPI_DOORBELL_HANDSHAKE | dwords << 16);
	err = wait_bell(controller);
	if (err)
		return err;
	write_register(controller, MPI_INTERRUPT_STATUS, 0);
	err = wait_taken(controller);
	for (at = 0; at < dwords && !err; at++) {
		write_register(controller, MPI_DOORBELL, le32_to_cpu(request[at]));
		err = wait_taken(controller);
	}
	return err;
}

/* Takes a reply, half a word at a time; the second one says how long it is. */
static int receive(struct hwperf_controller *controller, __le16 *reply,
		   u32 halves_max)
{
	u32 halves = 2;
	u32 at;
	int err;

	for (at = 0; at < halves; at++) {
		u16 half;

		err = wait_bell(controller);
		if (err)
			return err;
		half = read_register(controller, MPI_DOORBELL);
		write_register(controller, MPI_INTERRUPT_STATUS, 0);
		if (at < halves_max)
			reply[at] = cpu_to_le16(half);
		if (at == 1)
			halves = max(2 * (half & 0xff), 2);
	}
	err = wait_bell(controller);
	if (!err)
		err = wait_for(controller, MPI_DOORBELL, MPI_DOORBELL_USED, 0,
			       STEP_MS);
	write_register(controller, MPI_INTERRUPT_STATUS, 0);
	return err;
}

/* A request through the doorbell, for a controller that has no queues yet. */
static int handshake(struct hwperf_controller *controller, const void *request,
		     size_t request_bytes, void *reply, size_t reply_bytes)
{
	const struct mpi_request *asked = request;
	const struct mpi_reply *head = reply;
	int err;

	memset(reply, 0, reply_bytes);
	err = send(controller, request, request_bytes / 4);
	if (!err)
		err = receive(controller, reply, reply_bytes / 2);
	if (!err && (head->function != asked->function ||
		     le16_to_cpu(head->ioc_status) & MPI_IOC_STATUS_MASK))
		err = -EIO;
	if (err)
		dev_err(&controller->pdev->dev,
			"function %02x by the doorbell: %d, IOC status %04x\n",
			asked->function, err, le16_to_cpu(head->ioc_status));
	return err;
}

/* Whether indices go to the combined registers: what facts do not say is known by the device. */
static bool combines(const struct hwperf_controller *controller, u16 version,
		     u8 vectors)
{
	const struct hwperf_mpi *mpi = controller->own;
	u16 device = controller->pdev->device;
	bool is_later = mpi->misreads || (device >= 0xaa && device <= 0xaf) ||
			(device >= 0xd0 && device <= 0xd2);

	if (version < MPI_VERSION_26 && controller->pdev->revision < 2)
		return false;
	return vectors > (is_later ? 16 : 8);
}

/* How much of everything there is to be. */
static int adopt(struct hwperf_controller *controller,
		 const struct mpi_facts *facts)
{
	struct hwperf_mpi *mpi = controller->own;
	struct device *dev = &controller->pdev->dev;
	u32 credit = le16_to_cpu(facts->credit);
	u32 entries_max = round_down(le16_to_cpu(facts->reply_entries_max), 16);

	mpi->version = le16_to_cpu(facts->version);
	if (mpi->version != MPI_VERSION_25 && mpi->version != MPI_VERSION_26) {
		dev_err(dev, "it speaks MPI %u.%u, and this driver 2.5 and 2.6\n",
			mpi->version >> 8, mpi->version & 0xff);
		return -EOPNOTSUPP;
	}
	mpi->frame_bytes = le16_to_cpu(facts->frame_dwords) * 4;
	mpi->reply_bytes = facts->reply_dwords * 4;
	mpi->reply_queues = min_t(u32, facts->vectors, HWPERF_JOBS_MAX + 1);
	if (!is_power_of_2(mpi->frame_bytes) || mpi->frame_bytes < 128 ||
	    mpi->frame_bytes > 1024 || credit < 16 || entries_max < 32 ||
	    mpi->reply_bytes < 64 || mpi->reply_queues < 2) {
		dev_err(dev, "frames of %u and %u bytes, credit %u, %u reply queues of %u entries are not for this driver\n",
			mpi->frame_bytes, mpi->reply_bytes, credit,
			facts->vectors, entries_max);
		return -EOPNOTSUPP;
	}
	/* What one allocation holds; and SMID 0 is none. */
	mpi->frame_count = min3(credit + 1,
				HWPERF_DEPTH_MAX + (u32)MPI_SMID_FIRST,
				(u32)SZ_4M / mpi->frame_bytes);
	/* A queue that is full has an entry free. */
	mpi->reply_entries = min(round_up(mpi->frame_count + 1, 16), entries_max);
	mpi->reply_count = mpi->frame_count + SPARE_REPLIES;
	mpi->is_combined = combines(controller, mpi->version, facts->vectors);
	mpi->is_atomic = le32_to_cpu(facts->capabilities) & MPI_CAPABILITY_ATOMIC;
	controller->command_bytes_max = HWPERF_BLOCK_MAX;
	controller->queues = mpi->reply_queues - 1;
	controller->slots_max = mpi->frame_count - MPI_SMID_FIRST;
	controller->depth_max = min(controller->slots_max,
				    mpi->reply_entries - 1);
	return 0;
}

/*
 * Memory for it. Of each piece the controller takes one upper half of an
 * address: none crosses 4 GiB, as each is aligned to its size (DMA API).
 */
static int allocate(struct hwperf_controller *controller)
{
	struct hwperf_mpi *mpi = controller->own;
	struct device *dev = &controller->pdev->dev;

	mpi->frames = dma_alloc_coherent(dev, mpi->frame_count * mpi->frame_bytes,
					 &mpi->frames_dma, GFP_KERNEL);
	mpi->sense = dma_alloc_coherent(dev, mpi->frame_count * MPI_SENSE_BYTES,
					&mpi->sense_dma, GFP_KERNEL);
	mpi->replies_all = dma_alloc_coherent(dev, mpi->reply_queues *
					      mpi->reply_entries * sizeof(__le64),
					      &mpi->replies_dma, GFP_KERNEL);
	mpi->list = dma_alloc_coherent(dev, mpi->reply_queues * sizeof(*mpi->list),
				       &mpi->list_dma, GFP_KERNEL);
	mpi->reply_frames = dma_alloc_coherent(dev, mpi->reply_count *
					       mpi->reply_bytes,
					       &mpi->reply_frames_dma, GFP_KERNEL);
	mpi->free = dma_alloc_coherent(dev, mpi->reply_count * sizeof(*mpi->free),
				       &mpi->free_dma, GFP_KERNEL);
	mpi->page = dma_alloc_coherent(dev, HWPERF_PAGE, &mpi->page_dma,
				       GFP_KERNEL);
	if (!mpi->frames || !mpi->sense || !mpi->replies_all || !mpi->list ||
	    !mpi->reply_frames || !mpi->free || !mpi->page)
		return -ENOMEM;
	return 0;
}

static void release(struct device *dev, size_t bytes, void *memory,
		    dma_addr_t dma)
{
	if (memory)
		dma_free_coherent(dev, bytes, memory, dma);
}

static void release_all(struct hwperf_controller *controller)
{
	struct hwperf_mpi *mpi = controller->own;
	struct device *dev = &controller->pdev->dev;

	release(dev, mpi->frame_count * mpi->frame_bytes, mpi->frames,
		mpi->frames_dma);
	release(dev, mpi->frame_count * MPI_SENSE_BYTES, mpi->sense,
		mpi->sense_dma);
	release(dev, mpi->reply_queues * mpi->reply_entries * sizeof(__le64),
		mpi->replies_all, mpi->replies_dma);
	release(dev, mpi->reply_queues * sizeof(*mpi->list), mpi->list,
		mpi->list_dma);
	release(dev, mpi->reply_count * mpi->reply_bytes, mpi->reply_frames,
		mpi->reply_frames_dma);
	release(dev, mpi->reply_count * sizeof(*mpi->free), mpi->free,
		mpi->free_dma);
	release(dev, HWPERF_PAGE, mpi->page, mpi->page_dma);
	mpi->frames = NULL;
	mpi->sense = NULL;
	mpi->replies_all = NULL;
	mpi->list = NULL;
	mpi->reply_frames = NULL;
	mpi->free = NULL;
	mpi->page = NULL;
}

/* Queues that nothing is in, and all reply frames free. */
static void fill(struct hwperf_mpi *mpi)
{
	size_t queue_bytes = mpi->reply_entries * sizeof(__le64);
	u32 low = lower_32_bits(mpi->reply_frames_dma);
	u32 at;

	memset(mpi->replies_all, 0xff, mpi->reply_queues * queue_bytes);
	for (at = 0; at < mpi->reply_queues; at++) {
		struct hwperf_mpi_replies *replies = &mpi->replies[at];

		replies->entries = mpi->replies_all + at * mpi->reply_entries;
		replies->number = at;
		replies->index = 0;
		mpi->list[at].address = cpu_to_le64(mpi->replies_dma +
						    at * queue_bytes);
	}
	for (at = 0; at < mpi->reply_count; at++)
		mpi->free[at] = cpu_to_le32(low + at * mpi->reply_bytes);
	/* One stays in reserve: a full queue looks like an empty one. */
	mpi->free_index = mpi->reply_count - 1;
}

/* Gives a ready controller its queues. */
static int initialise(struct hwperf_controller *controller, bool takes_list)
{
	struct hwperf_mpi *mpi = controller->own;
	struct mpi_reply reply;
	struct mpi_init init = {
		.who = MPI_WHO_HOST_DRIVER,
		.function = MPI_FUNCTION_IOC_INIT,
		.flags = takes_list ? MPI_INIT_REPLY_LIST : 0,
		.version = cpu_to_le16(mpi->version),
		.header_version = cpu_to_le16(MPI_HEADER_VERSION),
		.page_shift = ilog2(HWPERF_PAGE),
		.vectors = mpi->reply_queues,
		.frame_dwords = cpu_to_le16(mpi->frame_bytes / 4),
		.reply_entries = cpu_to_le16(mpi->reply_entries),
		.free_entries = cpu_to_le16(mpi->reply_count),
		.sense_high = cpu_to_le32(upper_32_bits(mpi->sense_dma)),
		.reply_high = cpu_to_le32(upper_32_bits(mpi->reply_frames_dma)),
		.frames = cpu_to_le64(mpi->frames_dma),
		.replies = cpu_to_le64(takes_list ? mpi->list_dma :
						    mpi->replies_dma),
		.free = cpu_to_le64(mpi->free_dma),
		.time_ms = cpu_to_le64(ktime_to_ms(ktime_get_real())),
	};
	u32 at;
	int err;

	fill(mpi);
	err = handshake(controller, &init, sizeof(init), &reply, sizeof(reply));
	if (err)
		return err;
	write_register(controller, MPI_REPLY_FREE_INDEX, mpi->free_index);
	for (at = 0; at < mpi->reply_queues; at++)
		hwperf_mpi_tell(controller, &mpi->replies[at]);
	return wait_for(controller, MPI_DOORBELL, MPI_STATE_MASK,
			MPI_STATE_OPERATIONAL, STEP_MS);
}

static int bring_up(struct hwperf_controller *controller)
{
	struct mpi_request request = { .function = MPI_FUNCTION_IOC_FACTS };
	struct mpi_facts facts;
	int err;

	err = make_ready(controller);
	if (err) {
		dev_err(&controller->pdev->dev, "the controller does not get ready: %d\n",
			err);
		return err;
	}
	err = handshake(controller, &request, sizeof(request), &facts,
			sizeof(facts));
	if (!err)
		err = adopt(controller, &facts);
	if (!err)
		err = allocate(controller);
	if (!err)
		err = initialise(controller, le32_to_cpu(facts.capabilities) &
					     MPI_CAPABILITY_REPLY_LIST);
	return err;
}

static int enable(struct hwperf_controller *controller)
{
	struct hwperf_mpi *mpi = controller->own;
	u16 device = controller->pdev->device;
	int err;

	mpi->misreads = device >= 0xe0 && device <= 0xe7;
	err = bring_up(controller);
	if (!err)
		err = hwperf_mpi_find(controller);
	controller->enabled = !err;
	if (err)
		hwperf_mpi_disable(controller);
	return err;
}

void hwperf_mpi_disable(struct hwperf_controller *controller)
{
	controller->enabled = false;
	if (make_ready(controller)) {
		/* It may write to memory still: cut it off from all of it. */
		pci_clear_master(controller->pdev);
	}
	release_all(controller);
}

/* Posts a request: one store, which is the doorbell. */
void hwperf_mpi_post(struct hwperf_controller *controller, u64 descriptor)
{
	const struct hwperf_mpi *mpi = controller->own;

	if (mpi->is_atomic)
		writel(descriptor, controller->registers + MPI_REQUEST_POST_ATOMIC);
	else
		writeq(descriptor, controller->registers + MPI_REQUEST_POST);
}

/* The next reply descriptor; false: none, or not yet all of it. */
bool hwperf_mpi_take(struct hwperf_mpi *mpi, struct hwperf_mpi_replies *replies,
		     u64 *word)
{
	__le64 *entry = &replies->entries[replies->index];
	u64 seen = le64_to_cpu(READ_ONCE(*entry));

	if (lower_32_bits(seen) == ~0U || upper_32_bits(seen) == ~0U)
		return false;
	/* Data, sense and reply frame after the descriptor. */
	dma_rmb();
	*entry = cpu_to_le64(~0ULL);
	if (++replies->index == mpi->reply_entries)
		replies->index = 0;
	*word = seen;
	return true;
}

/* Tells the controller up to where a reply queue was taken. */
void hwperf_mpi_tell(struct hwperf_controller *controller,
		     const struct hwperf_mpi_replies *replies)
{
	const struct hwperf_mpi *mpi = controller->own;
	u32 offset = MPI_REPLY_POST_INDEX;
	u32 queue = replies->number;

	if (mpi->is_combined) {
		offset = MPI_REPLY_POST_INDEX_COMBINED + queue / 8 * 0x10;
		queue %= 8;
	}
	write_register(controller, offset, queue << 24 | replies->index);
}

/* Copies a reply frame, and gives it back; false: it is none of ours. */
bool hwperf_mpi_copy_reply(struct hwperf_controller *controller, u32 low,
			   void *to, size_t bytes)
{
	struct hwperf_mpi *mpi = controller->own;
	u32 offset = low - lower_32_bits(mpi->reply_frames_dma);

	if (offset % mpi->reply_bytes ||
	    offset / mpi->reply_bytes >= mpi->reply_count)
		return false;
	memcpy(to, mpi->reply_frames + offset, min_t(size_t, bytes, mpi->reply_bytes));
	mpi->free[mpi->free_index] = cpu_to_le32(low);
	if (++mpi->free_index == mpi->reply_count)
		mpi->free_index = 0;
	write_register(controller, MPI_REPLY_FREE_INDEX, mpi->free_index);
	return true;
}

const struct hwperf_ops hwperf_mpi_ops = {
	.name = "mpi",
	.class = PCI_CLASS_STORAGE_SAS << 8,
	.vendor = PCI_VENDOR_ID_LSI_LOGIC,
	/* As the controllers' own drivers do. */
	.dma_bits = 63,
	.controller_bytes = sizeof(struct hwperf_mpi),
	.queue_bytes = sizeof(struct hwperf_mpi_queue),
	.register_bytes = MPI_REGISTER_BYTES,
	.enable = enable,
	.disable = hwperf_mpi_disable,
	.open = hwperf_mpi_queue_open,
	.build = hwperf_mpi_queue_build,
	.close = hwperf_mpi_queue_close,
	.submit = hwperf_mpi_queue_submit,
	.poll = hwperf_mpi_queue_poll,
	.tell = hwperf_mpi_queue_tell,
};
