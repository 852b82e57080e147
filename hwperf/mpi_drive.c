// SPDX-License-Identifier: GPL-2.0-only
/*
 * The drive behind the controller: found among the devices that the controller
 * knows, and asked what it is. Messages go one at a time, by a request and a
 * reply queue of their own, and are polled for.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

#include "hwperf_mpi.h"

#define MESSAGE_MS	30000
/* With many devices discovery takes its time. */
#define PORT_ENABLE_MS	300000
/* Devices that are looked at. */
#define DEVICES_MAX	4096

#define TEST_UNIT_READY		0x00
#define INQUIRY			0x12
#define READ_CAPACITY_16	0x9e
#define CHECK_CONDITION		0x02
#define NOT_READY		0x02
#define UNIT_ATTENTION		0x06

/* What READ CAPACITY(16) gives. */
struct capacity {
	__be64 last;
	__be32 block_bytes;
	u8 protection;
} __packed;

static unsigned long long sas_address;
module_param(sas_address, ullong, 0444);
MODULE_PARM_DESC(sas_address, "drive behind a SAS controller that is used (0: the only one)");

/* Posts the request of messages, and waits for its reply. */
static int call(struct hwperf_controller *controller, u8 kind, u16 handle,
		unsigned int ms)
{
	struct hwperf_mpi *mpi = controller->own;
	struct hwperf_mpi_replies *replies = &mpi->replies[0];
	struct mpi_request *request = hwperf_mpi_frame(mpi, MPI_SMID_MESSAGE);
	unsigned long end = jiffies + msecs_to_jiffies(ms);
	bool is_answered = false;
	u64 word;

	memset(mpi->reply, 0, sizeof(mpi->reply));
	hwperf_mpi_post(controller, hwperf_mpi_descriptor(kind, replies->number,
							  MPI_SMID_MESSAGE,
							  handle));
	while (!is_answered) {
		bool is_late = time_after(jiffies, end);

		while (hwperf_mpi_take(mpi, replies, &word)) {
			bool is_ours = (u16)(word >> 16) == MPI_SMID_MESSAGE;
			u8 unwanted[4];

			/* What is not asked for has its frame back, and no more. */
			if ((word & 0xf) == MPI_REPLY_ADDRESS)
				hwperf_mpi_copy_reply(controller, word >> 32,
						      is_ours ? mpi->reply : unwanted,
						      is_ours ? sizeof(mpi->reply) :
								sizeof(unwanted));
			is_answered |= is_ours;
			hwperf_mpi_tell(controller, replies);
		}
		if (is_answered)
			break;
		if (is_late) {
			dev_err(&controller->pdev->dev,
				"no answer to a message of function %02x\n",
				request->function);
			return -ETIMEDOUT;
		}
		usleep_range(10, 100);
	}
	return 0;
}

static u16 ioc_status(const struct hwperf_mpi *mpi)
{
	const struct mpi_reply *reply = (const void *)mpi->reply;

	return le16_to_cpu(reply->ioc_status) & MPI_IOC_STATUS_MASK;
}

/* The request of messages, empty. */
static void *message(struct hwperf_mpi *mpi, u8 function)
{
	struct mpi_request *request = hwperf_mpi_frame(mpi, MPI_SMID_MESSAGE);

	memset(request, 0, mpi->frame_bytes);
	request->function = function;
	return request;
}

static int succeed(struct hwperf_controller *controller, unsigned int ms)
{
	struct hwperf_mpi *mpi = controller->own;
	struct mpi_request *request = hwperf_mpi_frame(mpi, MPI_SMID_MESSAGE);
	int err = call(controller, MPI_POST_OTHER, 0, ms);

	if (err)
		return err;
	if (!ioc_status(mpi))
		return 0;
	dev_err(&controller->pdev->dev, "message of function %02x: IOC status %04x\n",
		request->function, ioc_status(mpi));
	return -EIO;
}

/* Lets the controller find its devices. It is to tell nothing by itself. */
static int discover(struct hwperf_controller *controller)
{
	struct hwperf_mpi *mpi = controller->own;
	struct mpi_events *events = message(mpi, MPI_FUNCTION_EVENTS);
	int err;

	memset(events->masks, 0xff, sizeof(events->masks));
	err = succeed(controller, MESSAGE_MS);
	if (err)
		return err;
	message(mpi, MPI_FUNCTION_PORT_ENABLE);
	return succeed(controller, PORT_ENABLE_MS);
}

static struct mpi_config *device_page(struct hwperf_mpi *mpi, u8 action)
{
	struct mpi_config *config = message(mpi, MPI_FUNCTION_CONFIG);

	config->action = action;
	config->page_type = MPI_PAGE_EXTENDED;
	config->page_type_extended = MPI_PAGE_SAS_DEVICE;
	return config;
}

/* Looks through the devices, in the order of their handles, for the drive. */
static int find(struct hwperf_controller *controller)
{
	struct hwperf_mpi *mpi = controller->own;
	struct device *dev = &controller->pdev->dev;
	const struct mpi_config *head = (const void *)mpi->reply;
	const struct mpi_device *device = mpi->page;
	struct mpi_config *config;
	u32 handle = MPI_NO_HANDLE;
	u32 found = 0;
	u32 at, bytes;
	int err;

	config = device_page(mpi, MPI_CONFIG_HEADER);
	config->data_bytes = cpu_to_le32(MPI_DATA_TO_HOST);
	err = succeed(controller, MESSAGE_MS);
	if (err)
		return err;
	bytes = le16_to_cpu(head->page_dwords) * 4;
	if (bytes < sizeof(*device) || bytes > HWPERF_PAGE) {
		dev_err(dev, "device pages of %u bytes\n", bytes);
		return -EOPNOTSUPP;
	}
	for (at = 0; at < DEVICES_MAX; at++) {
		config = device_page(mpi, MPI_CONFIG_READ);
		config->page_dwords = cpu_to_le16(bytes / 4);
		config->page_address = cpu_to_le32(MPI_NEXT_HANDLE | handle);
		config->data_bytes = cpu_to_le32(MPI_DATA_TO_HOST | bytes);
		config->data = cpu_to_le64(mpi->page_dma);
		err = call(controller, MPI_POST_OTHER, 0, MESSAGE_MS);
		if (err)
			return err;
		if (ioc_status(mpi))
			break;
		/* Handles ascend; what does not is no list. */
		if (handle != MPI_NO_HANDLE && le16_to_cpu(device->handle) <= handle)
			break;
		handle = le16_to_cpu(device->handle);
		if (!(le32_to_cpu(device->info) & MPI_DEVICE_SSP_TARGET) ||
		    !(le16_to_cpu(device->flags) & MPI_DEVICE_PRESENT) ||
		    (sas_address && sas_address != le64_to_cpu(device->sas_address)))
			continue;
		found++;
		mpi->handle = handle;
		mpi->sas_address = le64_to_cpu(device->sas_address);
	}
	if (found == 1)
		return 0;
	if (found)
		dev_err(dev, "%u SAS drives: say which, by sas_address=0x...\n", found);
	else
		dev_err(dev, "there is no such SAS drive\n");
	return found ? -EINVAL : -ENODEV;
}

/* The request of a SCSI command, but for its CDB: data is one piece. */
void hwperf_mpi_scsi_io(struct hwperf_mpi *mpi, u16 smid, bool is_write,
			dma_addr_t data, u32 bytes)
{
	struct mpi_scsi_io *io = hwperf_mpi_frame(mpi, smid);
	u32 control = is_write ? MPI_CONTROL_WRITE : MPI_CONTROL_READ;

	memset(io, 0, mpi->frame_bytes);
	io->function = MPI_FUNCTION_SCSI_IO;
	io->handle = cpu_to_le16(mpi->handle);
	io->sense_low = cpu_to_le32(lower_32_bits(mpi->sense_dma +
						  smid * MPI_SENSE_BYTES));
	io->sense_bytes = MPI_SENSE_BYTES;
	io->list_dwords = MPI_LIST_DWORDS;
	io->data_bytes = cpu_to_le32(bytes);
	io->control = cpu_to_le32(bytes ? control : 0);
	io->data = cpu_to_le64(bytes ? data : 0);
	io->element_bytes = cpu_to_le32(bytes);
	io->element_flags = MPI_ELEMENT_LAST;
}

/*
 * How a command ended that has a reply, a byte each: IOC status, SCSI status,
 * sense key, additional sense code. 0: well.
 */
u32 hwperf_mpi_status(struct hwperf_mpi *mpi, u16 smid,
		      const struct mpi_reply *reply)
{
	const u8 *sense = mpi->sense + smid * MPI_SENSE_BYTES;
	u16 ioc = le16_to_cpu(reply->ioc_status) & MPI_IOC_STATUS_MASK;
	u32 status;

	if (ioc == MPI_IOC_STATUS_RECOVERED)
		ioc = 0;
	status = min_t(u32, ioc, 0xff) << 24 | reply->scsi_status << 16;
	if (reply->scsi_state & MPI_SCSI_STATE_SENSE) {
		/* Sense data in descriptors, or at fixed places. */
		bool is_long = (sense[0] & 0x7f) >= 0x72;

		status |= (sense[is_long ? 1 : 2] & 0xf) << 8;
		status |= sense[is_long ? 2 : 12];
	}
	return reply->scsi_status || ioc ? status : 0;
}

/* One SCSI command that reads into the page. Its status, or an error. */
static int command(struct hwperf_controller *controller, const u8 *cdb,
		   u32 cdb_bytes, u32 bytes, u32 *status)
{
	struct hwperf_mpi *mpi = controller->own;
	struct mpi_scsi_io *io = hwperf_mpi_frame(mpi, MPI_SMID_MESSAGE);
	int err;

	memset(mpi->page, 0, HWPERF_PAGE);
	hwperf_mpi_scsi_io(mpi, MPI_SMID_MESSAGE, false, mpi->page_dma, bytes);
	io->io_flags = cpu_to_le16(cdb_bytes);
	memcpy(io->cdb, cdb, cdb_bytes);
	err = call(controller, MPI_POST_SCSI_IO, mpi->handle, MESSAGE_MS);
	if (err)
		return err;
	*status = hwperf_mpi_status(mpi, MPI_SMID_MESSAGE,
				    (const void *)mpi->reply);
	/* Less than there was room for. */
	if (*status == MPI_IOC_STATUS_UNDERRUN << 24)
		*status = 0;
	return 0;
}

/* The same, of a command that must end well. */
static int must(struct hwperf_controller *controller, const u8 *cdb,
		u32 cdb_bytes, u32 bytes)
{
	u32 status = 0;
	int err = command(controller, cdb, cdb_bytes, bytes, &status);

	if (err || !status)
		return err;
	dev_err(&controller->pdev->dev, "SCSI command %02x failed: status %08x\n",
		cdb[0], status);
	return -EIO;
}

/* A drive says first that it was reset, and may need a while. */
static int become_ready(struct hwperf_controller *controller)
{
	static const u8 cdb[6] = { TEST_UNIT_READY };
	unsigned long end = jiffies + msecs_to_jiffies(HWPERF_TIMEOUT_MS);

	for (;;) {
		u32 status = 0;
		int err = command(controller, cdb, sizeof(cdb), 0, &status);
		u8 key = status >> 8 & 0xf;

		if (err || !status)
			return err;
		if (status >> 16 != CHECK_CONDITION ||
		    (key != NOT_READY && key != UNIT_ATTENTION) ||
		    time_after(jiffies, end)) {
			dev_err(&controller->pdev->dev,
				"the drive is not ready: status %08x\n", status);
			return -EIO;
		}
		msleep(20);
	}
}

/* What the drive is. */
static int ask(struct hwperf_controller *controller)
{
	static const u8 inquiry[6] = { INQUIRY, 0, 0, 0, 96 };
	static const u8 serial[6] = { INQUIRY, 1, 0x80, 0, 96 };
	static const u8 read_capacity[16] = { READ_CAPACITY_16, 0x10, [13] = 32 };
	struct hwperf_mpi *mpi = controller->own;
	const struct capacity *capacity = mpi->page;
	const u8 *page = mpi->page;
	u32 status = 0;
	u32 block;
	int err;

	err = must(controller, inquiry, sizeof(inquiry), 96);
	if (err)
		return err;
	if (page[0] & 0x1f) {
		dev_err(&controller->pdev->dev, "no disk: device type %02x\n", page[0]);
		return -EOPNOTSUPP;
	}
	hwperf_copy_text(controller->model, page + 8, 24);
	err = command(controller, serial, sizeof(serial), 96, &status);
	if (err)
		return err;
	if (!status)
		hwperf_copy_text(controller->serial, page + 4,
				 min_t(u32, page[3], sizeof(controller->serial) - 1));
	err = become_ready(controller);
	if (err)
		return err;
	err = must(controller, read_capacity, sizeof(read_capacity), 32);
	if (err)
		return err;
	block = be32_to_cpu(capacity->block_bytes);
	if (block < 512 || block > 4096 || !is_power_of_2(block) ||
	    capacity->protection & 1) {
		dev_err(&controller->pdev->dev,
			"blocks of %u bytes, or with protection, are not for this driver\n",
			block);
		return -EOPNOTSUPP;
	}
	controller->block_shift = ilog2(block);
	controller->blocks = be64_to_cpu(capacity->last) + 1;
	scnprintf(controller->unit, sizeof(controller->unit), "sas.%016llx",
		  mpi->sas_address);
	return 0;
}

int hwperf_mpi_find(struct hwperf_controller *controller)
{
	int err = discover(controller);

	if (!err)
		err = find(controller);
	return err ?: ask(controller);
}
