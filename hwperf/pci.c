// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes a function that is bound to this driver by driver_override, and gives
 * it back: the controller is shut down, and nothing of it is kept.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "hwperf.h"

static unsigned int nsid = 1;
module_param(nsid, uint, 0444);
MODULE_PARM_DESC(nsid, "namespace of a controller that is used (1)");

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
	struct hwperf_controller *controller;
	int err;

	if (pdev->class != PCI_CLASS_STORAGE_EXPRESS) {
		dev_err(&pdev->dev, "no NVMe controller: class %06x\n",
			pdev->class);
		return -ENODEV;
	}
	if (pci_resource_len(pdev, 0) < NVME_REG_DBS + 4096) {
		dev_err(&pdev->dev, "too few registers\n");
		return -ENODEV;
	}
	controller = kzalloc(sizeof(*controller), GFP_KERNEL);
	if (!controller)
		return -ENOMEM;
	controller->pdev = pdev;
	mutex_init(&controller->lock);
	err = pci_enable_device_mem(pdev);
	if (err)
		goto free;
	err = pci_request_mem_regions(pdev, "hwperf");
	if (err)
		goto disable_device;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		goto release;
	controller->registers = ioremap(pci_resource_start(pdev, 0),
					pci_resource_len(pdev, 0));
	if (!controller->registers) {
		err = -ENOMEM;
		goto release;
	}
	hwperf_no_pin(pdev);
	pci_set_master(pdev);
	err = hwperf_enable(controller);
	if (err)
		goto unmap;
	err = hwperf_identify(controller, nsid);
	if (err)
		goto disable;
	pci_set_drvdata(pdev, controller);
	hwperf_debugfs_add(controller);
	dev_info(&pdev->dev, "%s: namespace %u, %llu blocks of %u bytes\n",
		 controller->model, controller->nsid, controller->blocks,
		 1 << controller->block_shift);
	return 0;

disable:
	hwperf_disable(controller);
unmap:
	pci_clear_master(pdev);
	iounmap(controller->registers);
release:
	pci_release_mem_regions(pdev);
disable_device:
	pci_disable_device(pdev);
free:
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
	hwperf_disable(controller);
	mutex_unlock(&controller->lock);
	pci_clear_master(pdev);
	iounmap(controller->registers);
	pci_release_mem_regions(pdev);
	pci_disable_device(pdev);
	kfree(controller->report);
	kfree(controller);
}

static void hwperf_shutdown(struct pci_dev *pdev)
{
	struct hwperf_controller *controller = pci_get_drvdata(pdev);

	WRITE_ONCE(controller->removed, true);
	mutex_lock(&controller->lock);
	hwperf_disable(controller);
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

MODULE_DESCRIPTION("What an NVMe drive gives with no software in the way");
MODULE_LICENSE("GPL");
