// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes a function that is bound to this driver by driver_override, and gives
 * it back: the controller is shut down, and nothing of it is kept.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "hwperf.h"

static const struct hwperf_ops *const known[] = {
	&hwperf_nvme_ops,
	&hwperf_mpi_ops,
};

static const struct hwperf_ops *ops_of(const struct pci_dev *pdev)
{
	int at;

	for (at = 0; at < ARRAY_SIZE(known); at++) {
		const struct hwperf_ops *ops = known[at];

		if (pdev->class == ops->class &&
		    (!ops->vendor || pdev->vendor == ops->vendor))
			return ops;
	}
	return NULL;
}

/* The first area of memory: there the registers are. */
static int registers_of(struct pci_dev *pdev)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (pci_resource_flags(pdev, bar) & IORESOURCE_MEM)
			return bar;
	}
	return -ENODEV;
}

/* No interrupt is asked for, and none is to come by the pin. */
static void hwperf_no_pin(struct pci_dev *pdev)
{
	u16 command;

	pci_read_config_word(pdev, PCI_COMMAND, &command);
	pci_write_config_word(pdev, PCI_COMMAND,
			      command | PCI_COMMAND_INTX_DISABLE);
}

static int hwperf_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	const struct hwperf_ops *ops = ops_of(pdev);
	struct hwperf_controller *controller;
	int bar = registers_of(pdev);
	int err = -ENOMEM;

	if (!ops) {
		dev_err(&pdev->dev, "no controller that is known here: class %06x, vendor %04x\n",
			pdev->class, pdev->vendor);
		return -ENODEV;
	}
	if (bar < 0 || pci_resource_len(pdev, bar) < ops->register_bytes) {
		dev_err(&pdev->dev, "too few registers\n");
		return -ENODEV;
	}
	controller = kzalloc(sizeof(*controller), GFP_KERNEL);
	if (!controller)
		return -ENOMEM;
	controller->own = kzalloc(ops->controller_bytes, GFP_KERNEL);
	if (!controller->own)
		goto free;
	controller->ops = ops;
	controller->pdev = pdev;
	mutex_init(&controller->lock);
	err = pci_enable_device_mem(pdev);
	if (err)
		goto free;
	err = pci_request_mem_regions(pdev, "hwperf");
	if (err)
		goto disable_device;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(ops->dma_bits));
	if (err)
		goto release;
	controller->register_bytes = pci_resource_len(pdev, bar);
	controller->registers = ioremap(pci_resource_start(pdev, bar),
					controller->register_bytes);
	if (!controller->registers) {
		err = -ENOMEM;
		goto release;
	}
	hwperf_no_pin(pdev);
	pci_set_master(pdev);
	err = ops->enable(controller);
	if (err)
		goto unmap;
	pci_set_drvdata(pdev, controller);
	hwperf_debugfs_add(controller);
	dev_info(&pdev->dev, "%s: %s, %llu blocks of %u bytes\n",
		 controller->model, controller->unit, controller->blocks,
		 1 << controller->block_shift);
	return 0;

unmap:
	pci_clear_master(pdev);
	iounmap(controller->registers);
release:
	pci_release_mem_regions(pdev);
disable_device:
	pci_disable_device(pdev);
free:
	kfree(controller->own);
	kfree(controller);
	return err;
}

static void hwperf_remove(struct pci_dev *pdev)
{
	struct hwperf_controller *controller = pci_get_drvdata(pdev);

	/* Waits for a run, which ends at once. */
	WRITE_ONCE(controller->removed, true);
	hwperf_debugfs_remove(controller);
	mutex_lock(&controller->lock);
	controller->ops->disable(controller);
	mutex_unlock(&controller->lock);
	pci_clear_master(pdev);
	iounmap(controller->registers);
	pci_release_mem_regions(pdev);
	pci_disable_device(pdev);
	kfree(controller->report);
	kfree(controller->own);
	kfree(controller);
}

static void hwperf_shutdown(struct pci_dev *pdev)
{
	struct hwperf_controller *controller = pci_get_drvdata(pdev);

	WRITE_ONCE(controller->removed, true);
	mutex_lock(&controller->lock);
	controller->ops->disable(controller);
	mutex_unlock(&controller->lock);
}

/* Without a table no function is taken but by driver_override. */
static struct pci_driver hwperf_driver = {
	.name = "hwperf",
	.probe = hwperf_probe,
	.remove = hwperf_remove,
	.shutdown = hwperf_shutdown,
};

static int __init hwperf_init(void)
{
	int err;

	hwperf_debugfs_begin();
	err = pci_register_driver(&hwperf_driver);
	if (err)
		hwperf_debugfs_end();
	return err;
}

static void __exit hwperf_exit(void)
{
	pci_unregister_driver(&hwperf_driver);
	hwperf_debugfs_end();
}

module_init(hwperf_init);
module_exit(hwperf_exit);

MODULE_DESCRIPTION("What a drive gives with no software in the way");
MODULE_LICENSE("GPL");
