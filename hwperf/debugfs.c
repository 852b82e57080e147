// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files for each controller, in hwperf/ADDRESS of debugfs:
 *
 * about   what it is, as JSON
 * run     words in: a run; the write ends when the run does
 * report  what the last run found, as JSON
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "hwperf.h"

#define WORDS_MAX	512

static struct dentry *root;

static ssize_t read_text(char __user *to, size_t len, loff_t *at, char *text)
{
	ssize_t err;

	if (!text)
		return -ENOMEM;
	err = simple_read_from_buffer(to, len, at, text, strlen(text));
	kfree(text);
	return err;
}

static ssize_t about_read(struct file *file, char __user *to, size_t len,
			  loff_t *at)
{
	struct hwperf_controller *controller = file->private_data;

	return read_text(to, len, at, hwperf_about(controller));
}

static ssize_t report_read(struct file *file, char __user *to, size_t len,
			   loff_t *at)
{
	struct hwperf_controller *controller = file->private_data;
	char *text;
	int err;

	err = mutex_lock_interruptible(&controller->lock);
	if (err)
		return err;
	text = kstrdup(controller->report ?: "", GFP_KERNEL);
	mutex_unlock(&controller->lock);
	return read_text(to, len, at, text);
}

/* A run, with the lock held. */
static int run(struct hwperf_controller *controller, char *words)
{
	struct hwperf_found found;
	struct hwperf_load load;
	char *report;
	int err;

	if (controller->removed || !controller->enabled)
		return -ENODEV;
	err = hwperf_parse(words, &load);
	if (!err)
		err = hwperf_check(controller, &load);
	if (err)
		return err;
	/* No report is that of an earlier run. */
	kfree(controller->report);
	controller->report = NULL;
	err = hwperf_run(controller, &load, &found);
	if (err)
		return err;
	report = hwperf_report(controller, &load, &found);
	kvfree(found.classes);
	if (!report)
		return -ENOMEM;
	controller->report = report;
	if (!found.errors)
		return 0;
	dev_err(&controller->pdev->dev, "%llu commands failed, the first with status %x\n",
		found.errors, found.first_error);
	return -EIO;
}

static ssize_t run_write(struct file *file, const char __user *from, size_t len,
			 loff_t *at)
{
	struct hwperf_controller *controller = file->private_data;
	char *words;
	int err;

	if (len > WORDS_MAX)
		return -E2BIG;
	words = memdup_user_nul(from, len);
	if (IS_ERR(words))
		return PTR_ERR(words);
	err = mutex_lock_interruptible(&controller->lock);
	if (!err) {
		err = run(controller, words);
		mutex_unlock(&controller->lock);
	}
	kfree(words);
	return err ?: len;
}

static const struct file_operations about_operations = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = about_read,
	.llseek = default_llseek,
};

static const struct file_operations report_operations = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = report_read,
	.llseek = default_llseek,
};

static const struct file_operations run_operations = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = run_write,
	.llseek = noop_llseek,
};

void hwperf_debugfs_begin(void)
{
	root = debugfs_create_dir("hwperf", NULL);
}

void hwperf_debugfs_end(void)
{
	debugfs_remove(root);
}

void hwperf_debugfs_add(struct hwperf_controller *controller)
{
	struct dentry *folder;

	folder = debugfs_create_dir(pci_name(controller->pdev), root);
	controller->folder = folder;
	debugfs_create_file("about", 0400, folder, controller, &about_operations);
	debugfs_create_file("run", 0200, folder, controller, &run_operations);
	debugfs_create_file("report", 0400, folder, controller,
			    &report_operations);
}

/* Returns when no call to a file is under way. */
void hwperf_debugfs_remove(struct hwperf_controller *controller)
{
	debugfs_remove(controller->folder);
}
