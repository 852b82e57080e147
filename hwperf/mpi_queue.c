// SPDX-License-Identifier: GPL-2.0-only
/*
 * A reply queue and a request built for each slot. What is left for a run: the
 * next address in the CDB, and the request descriptor, whose store is the
 * doorbell.
 *
 * Always holds: the requests of a queue are its own, one for each slot, so that
 * a slot is known by the message's number; its answers come to its own reply
 * queue, which has more entries than there are requests; interrupts are masked.
 */
#include "hwperf_mpi.h"

#define READ_16		0x88
#define WRITE_16	0x8a

int hwperf_mpi_queue_open(struct hwperf_queue *queue)
{
	struct hwperf_mpi *mpi = queue->controller->own;
	struct hwperf_mpi_queue *own = queue->own;

	/* The first reply queue is that of messages. */
	own->replies = &mpi->replies[queue->job + 1];
	own->smid = MPI_SMID_FIRST + queue->job * queue->depth;
	own->descriptor = hwperf_mpi_descriptor(MPI_POST_SCSI_IO,
						own->replies->number,
						own->smid, mpi->handle);
	return 0;
}

int hwperf_mpi_queue_build(struct hwperf_queue *queue,
			   const struct hwperf_load *load, u16 number)
{
	struct hwperf_controller *controller = queue->controller;
	struct hwperf_mpi *mpi = controller->own;
	struct hwperf_mpi_queue *own = queue->own;
	u16 smid = own->smid + number;
	struct mpi_scsi_io *io = hwperf_mpi_frame(mpi, smid);
	bool is_write = load->verb == HWPERF_WRITE;

	hwperf_mpi_scsi_io(mpi, smid, is_write, queue->slots[number].data_dma,
			   load->block_bytes);
	io->io_flags = cpu_to_le16(sizeof(io->cdb_16));
	io->cdb_16.code = is_write ? WRITE_16 : READ_16;
	io->cdb_16.blocks = cpu_to_be32(load->block_bytes >>
					controller->block_shift);
	return 0;
}

void hwperf_mpi_queue_close(struct hwperf_queue *queue)
{
	u32 number;

	for (number = 0; queue->slots && number < queue->depth; number++) {
		if (!queue->slots[number].is_out)
			continue;
		/* Only a reset ends what a drive does not answer. */
		hwperf_mpi_disable(queue->controller);
		return;
	}
}

void hwperf_mpi_queue_submit(struct hwperf_queue *queue, u16 number)
{
	struct hwperf_mpi_queue *own = queue->own;
	struct hwperf_slot *slot = &queue->slots[number];
	struct mpi_scsi_io *io = hwperf_mpi_frame(queue->controller->own,
						  own->smid + number);

	io->cdb_16.lba = cpu_to_be64(slot->lba);
	hwperf_begin(slot);
	/* Orders all of the above before the doorbell. */
	hwperf_mpi_post(queue->controller, own->descriptor + ((u64)number << 16));
}

bool hwperf_mpi_queue_poll(struct hwperf_queue *queue, struct hwperf_end *end)
{
	struct hwperf_mpi *mpi = queue->controller->own;
	struct hwperf_mpi_queue *own = queue->own;
	struct mpi_reply reply;
	u16 smid;
	u64 word;

	if (!hwperf_mpi_take(mpi, own->replies, &word))
		return false;
	smid = word >> 16;
	end->slot = smid < own->smid ? HWPERF_STRANGER : smid - own->smid;
	switch (word & 0xf) {
	case MPI_REPLY_SUCCESS:
	case MPI_REPLY_FAST_SUCCESS:
		end->status = 0;
		break;
	case MPI_REPLY_ADDRESS:
		if (hwperf_mpi_copy_reply(queue->controller, word >> 32, &reply,
					  sizeof(reply)) &&
		    end->slot < queue->depth) {
			end->status = hwperf_mpi_status(mpi, smid, &reply);
			break;
		}
		fallthrough;
	default:
		end->slot = HWPERF_STRANGER;
	}
	return true;
}

void hwperf_mpi_queue_tell(struct hwperf_queue *queue)
{
	struct hwperf_mpi_queue *own = queue->own;

	hwperf_mpi_tell(queue->controller, own->replies);
}
