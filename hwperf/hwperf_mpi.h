/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SAS controllers that speak MPI 2.5 or 2.6.
 *
 * mpi.c        registers, resets, the handshake, queues in memory
 * mpi_drive.c  messages that are posted: finding the drive, and what it is
 * mpi_queue.c  a reply queue and requests for each job
 */
#ifndef HWPERF_MPI_H
#define HWPERF_MPI_H

#include <linux/build_bug.h>

#include "hwperf.h"

/* Registers, 4 bytes each. */
#define MPI_DOORBELL			0x00
#define MPI_WRITE_SEQUENCE		0x04
#define MPI_DIAGNOSTIC			0x08
#define MPI_INTERRUPT_STATUS		0x30
#define MPI_INTERRUPT_MASK		0x34
#define MPI_REPLY_FREE_INDEX		0x48
#define MPI_REPLY_POST_INDEX		0x6c
/* 8 bytes in one store: a request. */
#define MPI_REQUEST_POST		0xc0
/* A request in 4 bytes, for controllers with the capability. */
#define MPI_REQUEST_POST_ATOMIC		0xc8
/* Indices of combined reply queues, for 8 queues each, 16 bytes apart. */
#define MPI_REPLY_POST_INDEX_COMBINED	0x30c
#define MPI_REGISTER_BYTES		0x400

#define MPI_STATE_MASK			0xf0000000
#define MPI_STATE_READY			0x10000000
#define MPI_STATE_OPERATIONAL		0x20000000
#define MPI_DOORBELL_USED		0x08000000
#define MPI_DOORBELL_RESET		(0x40U << 24)
#define MPI_DOORBELL_HANDSHAKE		(0x42U << 24)
#define MPI_STATUS_BUSY			0x80000000
#define MPI_STATUS_DOORBELL		0x00000001
#define MPI_INTERRUPTS_ALL		0x40000009
#define MPI_DIAGNOSTIC_OPEN		0x80
#define MPI_DIAGNOSTIC_RESET		0x04
#define MPI_DIAGNOSTIC_HOLD		0x02

#define MPI_FUNCTION_SCSI_IO		0x00
#define MPI_FUNCTION_IOC_INIT		0x02
#define MPI_FUNCTION_IOC_FACTS		0x03
#define MPI_FUNCTION_CONFIG		0x04
#define MPI_FUNCTION_PORT_ENABLE	0x06
#define MPI_FUNCTION_EVENTS		0x07

/* Kinds of request descriptors, and of reply descriptors. */
#define MPI_POST_SCSI_IO		0x00
#define MPI_POST_OTHER			0x08
#define MPI_REPLY_SUCCESS		0x00
#define MPI_REPLY_ADDRESS		0x01
#define MPI_REPLY_FAST_SUCCESS		0x06

#define MPI_IOC_STATUS_MASK		0x7fff
#define MPI_IOC_STATUS_RECOVERED	0x0040
#define MPI_IOC_STATUS_UNDERRUN		0x0045

/* What all requests begin with. */
struct mpi_request {
	__le16 word;
	u8 chain_offset;
	u8 function;
	__le16 word_2;
	u8 port;
	u8 flags;
	__le32 reserved;
};

/* What all replies begin with. */
struct mpi_reply {
	__le16 word;
	u8 dwords;
	u8 function;
	u8 reserved_4[3];
	u8 flags;
	u8 reserved_8[4];
	/* SCSI commands only. */
	u8 scsi_status;
	u8 scsi_state;
	__le16 ioc_status;
	__le32 log_info;
};

#define MPI_SCSI_STATE_SENSE	1

struct mpi_facts {
	__le16 version;
	u8 dwords;
	u8 function;
	u8 reserved_4[0x10];
	u8 chain_depth_max;
	u8 who;
	u8 ports;
	u8 vectors;
	__le16 credit;
	__le16 product;
	__le32 capabilities;
	__le32 firmware;
	__le16 frame_dwords;
	u8 reserved_26[0xe];
	__le16 reply_entries_max;
	u8 reply_dwords;
	u8 reserved_37[0xd];
} __packed;
static_assert(sizeof(struct mpi_facts) == 0x44);

#define MPI_VERSION_25			0x0205
#define MPI_VERSION_26			0x0206
#define MPI_CAPABILITY_REPLY_LIST	0x00040000
#define MPI_CAPABILITY_ATOMIC		0x00080000

struct mpi_init {
	u8 who;
	u8 reserved_1;
	u8 chain_offset;
	u8 function;
	u8 reserved_4[3];
	u8 flags;
	u8 reserved_8[4];
	__le16 version;
	__le16 header_version;
	__le32 reserved_10;
	__le16 configuration;
	u8 page_shift;
	u8 vectors;
	__le16 reserved_18;
	__le16 frame_dwords;
	__le16 reply_entries;
	__le16 free_entries;
	__le32 sense_high;
	__le32 reply_high;
	__le64 frames;
	__le64 replies;
	__le64 free;
	__le64 time_ms;
} __packed;
static_assert(sizeof(struct mpi_init) == 0x48);

#define MPI_WHO_HOST_DRIVER	4
#define MPI_HEADER_VERSION	0x2a00
/* The address of the reply queues is that of a list of their addresses. */
#define MPI_INIT_REPLY_LIST	1

/* An entry of that list. */
struct mpi_address {
	__le64 address;
	__le64 reserved;
};

struct mpi_events {
	struct mpi_request head;
	__le32 reserved_c[2];
	/* A bit that is set masks the event. */
	__le32 masks[4];
	__le32 reserved_24;
} __packed;
static_assert(sizeof(struct mpi_events) == 0x28);

struct mpi_config {
	u8 action;
	u8 reserved_1;
	u8 chain_offset;
	u8 function;
	__le16 page_dwords;
	u8 page_type_extended;
	u8 flags;
	u8 reserved_8[0xc];
	u8 page_version;
	u8 page_dwords_short;
	u8 page_number;
	u8 page_type;
	__le32 page_address;
	/* An element of the older form: flags and length, address. */
	__le32 data_bytes;
	__le64 data;
	u8 reserved_28[4];
} __packed;
static_assert(sizeof(struct mpi_config) == 0x2c);

#define MPI_CONFIG_HEADER		0
#define MPI_CONFIG_READ			1
#define MPI_PAGE_EXTENDED		0x0f
#define MPI_PAGE_SAS_DEVICE		0x12
#define MPI_DATA_TO_HOST		0xd3000000
/* Form of an address of device pages: the one after this handle. */
#define MPI_NEXT_HANDLE			0x00000000
#define MPI_NO_HANDLE			0xffff

/* SAS device page 0. */
struct mpi_device {
	u8 reserved_0[0xc];
	__le64 sas_address;
	u8 reserved_14[4];
	__le16 handle;
	u8 reserved_1a[2];
	__le32 info;
	__le16 flags;
} __packed;
static_assert(sizeof(struct mpi_device) == 0x22);

#define MPI_DEVICE_SSP_TARGET		0x400
#define MPI_DEVICE_PRESENT		1

/* CDB of READ(16) and WRITE(16). */
struct mpi_cdb_16 {
	u8 code;
	u8 flags;
	__be64 lba;
	__be32 blocks;
	u8 group;
	u8 control;
} __packed;

struct mpi_scsi_io {
	__le16 handle;
	u8 chain_offset;
	u8 function;
	u8 reserved_4[8];
	__le32 sense_low;
	__le16 dma_flags;
	u8 sense_bytes;
	u8 reserved_13;
	/* Where the list of elements begins, dwords. */
	u8 list_dwords;
	u8 reserved_15[7];
	__le32 data_bytes;
	__le32 reserved_20;
	__le16 io_flags;
	u8 reserved_26[0xe];
	u8 lun[8];
	__le32 control;
	union {
		u8 cdb[32];
		struct mpi_cdb_16 cdb_16;
	};
	/* One element, for data that is one piece. */
	__le64 data;
	__le32 element_bytes;
	u8 reserved_6c[3];
	u8 element_flags;
} __packed;
static_assert(sizeof(struct mpi_scsi_io) == 0x70);

#define MPI_LIST_DWORDS		0x18
#define MPI_CONTROL_WRITE	0x01000000
#define MPI_CONTROL_READ	0x02000000
#define MPI_ELEMENT_LAST	0x40

#define MPI_SENSE_BYTES		96
/* The request of messages; those behind it are of commands. */
#define MPI_SMID_MESSAGE	1
#define MPI_SMID_FIRST		2

/* A reply queue. An entry that was taken holds ones again. */
struct hwperf_mpi_replies {
	__le64 *entries;
	u32 number;
	u32 index;
};

struct hwperf_mpi {
	/* Registers may read as 0 by mistake. */
	bool misreads;
	bool is_combined;
	bool is_atomic;
	u16 version;
	/* Requests: one for each system message id (SMID), from 0 on, which is none. */
	u32 frame_bytes;
	u32 frame_count;
	void *frames;
	dma_addr_t frames_dma;
	void *sense;
	dma_addr_t sense_dma;
	/* Reply queues, one behind the other: that of messages, and one for each job. */
	u32 reply_entries;
	u32 reply_queues;
	__le64 *replies_all;
	dma_addr_t replies_dma;
	struct hwperf_mpi_replies replies[HWPERF_JOBS_MAX + 1];
	/* Their addresses, for controllers that take a list. */
	struct mpi_address *list;
	dma_addr_t list_dma;
	/* Reply frames, and the queue by which the controller gets them. */
	u32 reply_bytes;
	u32 reply_count;
	void *reply_frames;
	dma_addr_t reply_frames_dma;
	__le32 *free;
	dma_addr_t free_dma;
	u32 free_index;
	/* What messages move, and the reply to the last one. */
	void *page;
	dma_addr_t page_dma;
	u8 reply[128];
	/* The drive. */
	u16 handle;
	u64 sas_address;
};

struct hwperf_mpi_queue {
	struct hwperf_mpi_replies *replies;
	/* The request of slot 0; the others' follow. */
	u16 smid;
	/* The request descriptor of slot 0. */
	u64 descriptor;
};

static inline void *hwperf_mpi_frame(struct hwperf_mpi *mpi, u16 smid)
{
	return mpi->frames + smid * mpi->frame_bytes;
}

/* A request descriptor. */
static inline u64 hwperf_mpi_descriptor(u8 kind, u8 queue, u16 smid, u16 handle)
{
	return kind | queue << 8 | (u64)smid << 16 | (u64)handle << 48;
}

/* mpi.c */
void hwperf_mpi_post(struct hwperf_controller *controller, u64 descriptor);
bool hwperf_mpi_take(struct hwperf_mpi *mpi, struct hwperf_mpi_replies *replies,
		     u64 *word);
void hwperf_mpi_tell(struct hwperf_controller *controller,
		     const struct hwperf_mpi_replies *replies);
bool hwperf_mpi_copy_reply(struct hwperf_controller *controller, u32 low,
			   void *to, size_t bytes);
void hwperf_mpi_disable(struct hwperf_controller *controller);

/* mpi_drive.c */
int hwperf_mpi_find(struct hwperf_controller *controller);
void hwperf_mpi_scsi_io(struct hwperf_mpi *mpi, u16 smid, bool is_write,
			dma_addr_t data, u32 bytes);
u32 hwperf_mpi_status(struct hwperf_mpi *mpi, u16 smid,
		      const struct mpi_reply *reply);

/* mpi_queue.c */
int hwperf_mpi_queue_open(struct hwperf_queue *queue);
int hwperf_mpi_queue_build(struct hwperf_queue *queue,
			   const struct hwperf_load *load, u16 number);
void hwperf_mpi_queue_close(struct hwperf_queue *queue);
void hwperf_mpi_queue_submit(struct hwperf_queue *queue, u16 number);
bool hwperf_mpi_queue_poll(struct hwperf_queue *queue, struct hwperf_end *end);
void hwperf_mpi_queue_tell(struct hwperf_queue *queue);

#endif
