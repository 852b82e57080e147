// SPDX-License-Identifier: GPL-2.0-only
/*
 * An NVMe controller: enabled, asked what it is, shut down. Admin commands go
 * one at a time, and are polled for.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/jiffies.h>
#include <linux/moduleparam.h>
#include <linux/pci.h>
#include <linux/string.h>

#include "hwperf_nvme.h"

/* I/O queue pairs that are asked for. */
#define QUEUES_WANTED	HWPERF_JOBS_MAX
#define ADMIN_ENTRIES	8

static unsigned int nsid = 1;
module_param(nsid, uint, 0444);
MODULE_PARM_DESC(nsid, "namespace of an NVMe controller that is used (1)");

static bool is_gone(u32 value)
{
	return value == ~0U;
}

/* Waits for CSTS to have `value` in `mask`. */
static int wait_status(struct hwperf_controller *controller, u32 mask,
		       u32 value, unsigned long ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms) + 1;

	for (;;) {
		u32 status = readl(controller->registers + NVME_REG_CSTS);
		bool is_late = time_after(jiffies, end);

		if (is_gone(status))
			return -ENODEV;
		if ((status & mask) == value)
			return 0;
		if (is_late)
			return -ETIMEDOUT;
		usleep_range(1000, 2000);
	}
}

/* CAP.TO is in units of 500 ms; some say 0, and mean that they do not know. */
static unsigned long ready_ms(struct hwperf_controller *controller)
{
	struct hwperf_nvme *own = controller->own;

	return max(NVME_CAP_TIMEOUT(own->capabilities) * 500UL, 1000UL);
}

int hwperf_nvme_rings_alloc(struct hwperf_controller *controller,
			    struct hwperf_nvme_rings *rings, u16 number,
			    u32 entries)
{
	struct hwperf_nvme *own = controller->own;
	struct device *dev = &controller->pdev->dev;
	void __iomem *doorbells = controller->registers + NVME_REG_DBS;

	rings->entries = entries;
	rings->submissions = dma_alloc_coherent(dev,
						entries * sizeof(*rings->submissions),
						&rings->submissions_dma, GFP_KERNEL);
	rings->completions = dma_alloc_coherent(dev,
						entries * sizeof(*rings->completions),
						&rings->completions_dma, GFP_KERNEL);
	if (!rings->submissions || !rings->completions)
		return -ENOMEM;
	rings->submission_doorbell = doorbells + 2 * number * own->stride;
	rings->completion_doorbell = doorbells + (2 * number + 1) * own->stride;
	rings->tail = 0;
	rings->head = 0;
	rings->phase = 1;
	return 0;
}

void hwperf_nvme_rings_free(struct hwperf_controller *controller,
			    struct hwperf_nvme_rings *rings)
{
	struct device *dev = &controller->pdev->dev;

	if (rings->submissions)
		dma_free_coherent(dev, rings->entries * sizeof(*rings->submissions),
				  rings->submissions, rings->submissions_dma);
	if (rings->completions)
		dma_free_coherent(dev, rings->entries * sizeof(*rings->completions),
				  rings->completions, rings->completions_dma);
	rings->submissions = NULL;
	rings->completions = NULL;
}

/* The controller does nothing more, and touches no memory, after this. */
static int stop(struct hwperf_controller *controller)
{
	writel(0, controller->registers + NVME_REG_CC);
	return wait_status(controller, NVME_CSTS_RDY, 0, ready_ms(controller));
}

static int start(struct hwperf_controller *controller)
{
	struct hwperf_nvme *own = controller->own;
	void __iomem *registers = controller->registers;
	u32 entries = ADMIN_ENTRIES - 1;

	writel(entries << 16 | entries, registers + NVME_REG_AQA);
	lo_hi_writeq(own->admin.submissions_dma, registers + NVME_REG_ASQ);
	lo_hi_writeq(own->admin.completions_dma, registers + NVME_REG_ACQ);
	writel(~0U, registers + NVME_REG_INTMS);
	writel(NVME_CC_CSS_NVM | NVME_CC_AMS_RR | NVME_CC_SHN_NONE |
	       NVME_CC_IOSQES | NVME_CC_IOCQES | NVME_CC_ENABLE,
	       registers + NVME_REG_CC);
	return wait_status(controller, NVME_CSTS_RDY, NVME_CSTS_RDY,
			   ready_ms(controller));
}

static int bring_up(struct hwperf_controller *controller)
{
	struct hwperf_nvme *own = controller->own;
	struct device *dev = &controller->pdev->dev;
	u64 capabilities = lo_hi_readq(controller->registers + NVME_REG_CAP);
	int err;

	if (capabilities == ~0ULL)
		return -ENODEV;
	own->capabilities = capabilities;
	own->stride = 4 << NVME_CAP_STRIDE(capabilities);
	if (NVME_CAP_MPSMIN(capabilities) > 0) {
		dev_err(dev, "it takes no pages of 4 KiB\n");
		return -EOPNOTSUPP;
	}
	err = stop(controller);
	if (err) {
		dev_err(dev, "the controller does not stop\n");
		return err;
	}
	err = hwperf_nvme_rings_alloc(controller, &own->admin, 0, ADMIN_ENTRIES);
	own->page = dma_alloc_coherent(dev, HWPERF_PAGE, &own->page_dma,
				       GFP_KERNEL);
	if (!err && !own->page)
		err = -ENOMEM;
	if (!err)
		err = start(controller);
	controller->enabled = !err;
	if (err) {
		dev_err(dev, "the controller does not start: %d\n", err);
		hwperf_nvme_disable(controller);
	}
	return err;
}

void hwperf_nvme_disable(struct hwperf_controller *controller)
{
	struct hwperf_nvme *own = controller->own;
	struct device *dev = &controller->pdev->dev;
	void __iomem *control = controller->registers + NVME_REG_CC;

	if (controller->enabled) {
		u32 value = readl(control);

		if (!is_gone(value)) {
			value &= ~NVME_CC_SHN_MASK;
			writel(value | NVME_CC_SHN_NORMAL, control);
			wait_status(controller, NVME_CSTS_SHST_MASK,
				    NVME_CSTS_SHST_CMPLT, HWPERF_TIMEOUT_MS);
		}
		controller->enabled = false;
	}
	if (stop(controller)) {
		/* It may write to memory still: cut it off from all of it. */
		pci_clear_master(controller->pdev);
	}
	hwperf_nvme_rings_free(controller, &own->admin);
	if (own->page)
		dma_free_coherent(dev, HWPERF_PAGE, own->page, own->page_dma);
	own->page = NULL;
}

int hwperf_nvme_admin(struct hwperf_controller *controller,
		      struct nvme_command *command, u32 *result)
{
	struct hwperf_nvme *own = controller->own;
	struct hwperf_nvme_rings *rings = &own->admin;
	unsigned long end = jiffies + msecs_to_jiffies(HWPERF_TIMEOUT_MS);
	struct nvme_completion *entry = &rings->completions[rings->head];
	u16 status;

	if (!controller->enabled)
		return -ENODEV;
	command->common.command_id = own->admin_cid++;
	rings->submissions[rings->tail] = *command;
	rings->tail = (rings->tail + 1) % rings->entries;
	writel(rings->tail, rings->submission_doorbell);
	while ((le16_to_cpu(READ_ONCE(entry->status)) & 1) != rings->phase) {
		if (time_after(jiffies, end)) {
			dev_err(&controller->pdev->dev,
				"no answer to admin command %02x\n",
				command->common.opcode);
			return -ETIMEDOUT;
		}
		usleep_range(10, 100);
	}
	/* The rest of the entry, and what it tells of, after the phase. */
	dma_rmb();
	status = le16_to_cpu(entry->status) >> 1;
	if (result)
		*result = le32_to_cpu(entry->result.u32);
	if (++rings->head == rings->entries) {
		rings->head = 0;
		rings->phase ^= 1;
	}
	writel(rings->head, rings->completion_doorbell);
	if (status & 0x7ff) {
		dev_err(&controller->pdev->dev,
			"admin command %02x failed: status %03x\n",
			command->common.opcode, status);
		return -EIO;
	}
	return 0;
}

static int identify(struct hwperf_controller *controller, u8 cns, u32 space)
{
	struct hwperf_nvme *own = controller->own;
	struct nvme_command command = {
		.identify = {
			.opcode = nvme_admin_identify,
			.nsid = cpu_to_le32(space),
			.cns = cns,
			.dptr.prp1 = cpu_to_le64(own->page_dma),
		},
	};

	memset(own->page, 0, HWPERF_PAGE);
	return hwperf_nvme_admin(controller, &command, NULL);
}

/* What the controller and the namespace are, and how many queues there may be. */
static int ask(struct hwperf_controller *controller)
{
	struct hwperf_nvme *own = controller->own;
	struct device *dev = &controller->pdev->dev;
	struct nvme_command command = {
		.features = {
			.opcode = nvme_admin_set_features,
			.fid = cpu_to_le32(NVME_FEAT_NUM_QUEUES),
			.dword11 = cpu_to_le32((QUEUES_WANTED - 1) << 16 |
					       (QUEUES_WANTED - 1)),
		},
	};
	struct nvme_id_ctrl *about = own->page;
	struct nvme_id_ns *space = own->page;
	struct nvme_lbaf *format;
	u64 doorbells;
	u32 granted;
	int err;

	err = identify(controller, NVME_ID_CNS_CTRL, 0);
	if (err)
		return err;
	hwperf_copy_text(controller->model, about->mn, sizeof(about->mn));
	hwperf_copy_text(controller->serial, about->sn, sizeof(about->sn));
	controller->command_bytes_max = HWPERF_BLOCK_MAX;
	if (about->mdts && about->mdts < 9)
		controller->command_bytes_max = HWPERF_PAGE << about->mdts;
	err = identify(controller, NVME_ID_CNS_NS, nsid);
	if (err)
		return err;
	format = &space->lbaf[space->flbas & 0xf];
	if (!space->ncap || format->ds < 9 || format->ds > 12 || format->ms) {
		dev_err(dev, "namespace %u is not there, or has a format that is not for this driver\n",
			nsid);
		return -EOPNOTSUPP;
	}
	own->nsid = nsid;
	scnprintf(controller->unit, sizeof(controller->unit), "ns%u", nsid);
	controller->block_shift = format->ds;
	controller->blocks = le64_to_cpu(space->nsze);
	err = hwperf_nvme_admin(controller, &command, &granted);
	if (err)
		return err;
	doorbells = (controller->register_bytes - NVME_REG_DBS) /
		    (2 * own->stride) - 1;
	controller->queues = min3(granted & 0xffff, granted >> 16,
				  (u32)QUEUES_WANTED - 1) + 1;
	controller->queues = min_t(u64, controller->queues, doorbells);
	controller->depth_max = min_t(u32, NVME_CAP_MQES(own->capabilities),
				      HWPERF_DEPTH_MAX);
	controller->slots_max = U32_MAX;
	return 0;
}

static int enable(struct hwperf_controller *controller)
{
	int err = bring_up(controller);

	if (err)
		return err;
	err = ask(controller);
	if (err)
		hwperf_nvme_disable(controller);
	return err;
}

const struct hwperf_ops hwperf_nvme_ops = {
	.name = "nvme",
	.class = PCI_CLASS_STORAGE_EXPRESS,
	.dma_bits = 64,
	.controller_bytes = sizeof(struct hwperf_nvme),
	.queue_bytes = sizeof(struct hwperf_nvme_queue),
	.register_bytes = NVME_REG_DBS + 4096,
	.enable = enable,
	.disable = hwperf_nvme_disable,
	.open = hwperf_nvme_open,
	.build = hwperf_nvme_build,
	.close = hwperf_nvme_close,
	.submit = hwperf_nvme_submit,
	.poll = hwperf_nvme_poll,
	.tell = hwperf_nvme_tell,
};
