package io.qpair.kafka.streams;

import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ProcessorContextUtils;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;

/** The sensor of records that a store dropped since they came too late. */
final class Metrics {
    private Metrics() {}

    static Sensor droppedRecords(StateStoreContext context) {
        return TaskMetrics.droppedRecordsSensor(Thread.currentThread().getName(), context.taskId().toString(), ProcessorContextUtils.metricsImpl(context));
    }

    static void drop(Sensor sensor, StateStoreContext context) {
        sensor.record(1.0, ProcessorContextUtils.asInternalProcessorContext(context).currentSystemTimeMs());
    }
}
