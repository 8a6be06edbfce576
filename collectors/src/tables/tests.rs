//! Batches have the columns that the schema says.

use std::time::Duration;

use arrow::array::RecordBatch;
use gputrace_abi::Class;
use gputrace_abi::graph::{Contents, Kernel};

use super::own::DIRECTIONS;
use super::*;
use crate::archive::Columns;
use crate::process::pending::Ahead;
use crate::rollups::Rollups;
use crate::schema::{TABLES, Type};

fn call(class: Class) -> Call {
    Call {
        class,
        start_ns: 1,
        api_ns: 2,
        process_id: 3,
        pid: 4,
        tid: 5,
        correlation_id: 6,
        api_id: 7,
        context: 8,
        device: None,
        stream: 9,
        captured: true,
        result: 10,
        ahead: Ahead { streams: 1, legacy: true },
        stack_id: None,
    }
}

/// One row in each table.
fn fill(tables: &mut Tables) {
    let launch = Launch {
        name_id: None,
        function: 1,
        grid: [1, 2, 3],
        block: [4, 5, 6],
        shared_bytes: 7,
        kernels: None,
        graph_exec_id: Some(1),
        stack_launches: Some(8),
        stands_for: Some(64),
    };
    tables.launch(&call(Class::Launch), &launch);
    tables.sync(&call(Class::Sync), 200, 0);
    let transfer = Transfer {
        set: true,
        peer: false,
        src_kind: End::Unknown,
        dst_kind: End::Managed,
        bytes: 1,
        dst: 2,
        src: 3,
        is_async: false,
    };
    tables.transfer(&call(Class::Transfer), &transfer);
    tables.memory(&call(Class::Free), 200, 1, 2, None);
    tables.api(&call(Class::Module), 0, true);
    let group = Collective {
        detail: 3,
        communicator: 0,
        count: 0,
        data_type: u8::MAX,
        operator: u16::MAX,
        party: -1,
        in_group: false,
    };
    tables.collective(&call(Class::Collective), &group);
    tables.communicator(&communicator());
    tables.name(1, "kernel", "k");
    tables.graph(&Graph {
        start_ns: 1,
        process_id: 3,
        pid: 4,
        tid: 5,
        graph_exec_id: 6,
        first: true,
        exec: 7,
        contents: Contents::default(),
        updates: 0,
    });
    let kernel = Kernel { function: 1, nodes: 2, conditional_nodes: 3 };
    tables.graph_kernel(&GraphKernel { start_ns: 1, process_id: 3, graph_exec_id: 6, name_id: None, kernel });
    tables.range(&Range {
        start_ns: 1,
        end_ns: Some(1),
        process_id: 2,
        pid: 3,
        tid: 4,
        correlation_id: 5,
        kind: RangeKind::Mark,
        name_id: None,
        domain_id: Some(6),
        level: None,
        category: Some(7),
        category_id: None,
        color: None,
        payload_int: None,
        payload_float: Some(8.0),
    });
    let frame = StackRow { language: "python", ..StackRow::default() };
    tables.stack(Stacked { id: 1, caller: None, joined: None, frame });
    tables.os_wait(&OsWait { detail: 200, ..OsWait::default() });
    let row = CommandBuffer { events: 1, completed: Some(false), gpu: Some((1, 2)), ..CommandBuffer::default() };
    tables.command_buffer(&row);
    tables.dispatch(&dispatch(DispatchKind::Threads, [100, 1, 1], [64, 1, 1]), None);
    let on_gpu = OnGpu { device: Some(1), ..OnGpu::default() };
    let copies = Copies { sets: true, direction: None, src_kind: None, dst_kind: Some(End::Managed), bytes: 5 };
    tables.on_gpu(&on_gpu, &Worked::Copies(copies));
    tables.on_gpu(&on_gpu, &Worked::Kernel(on_gpu::Kernel::default()));
    let window = GpuWindow { start_ns: 1, window_ns: 2, process_id: 3, pid: 4, kind: 2, ended_by: 99, lost: 0 };
    tables.gpu_window(&window);
    let id = crate::counters::Id::Power;
    tables.counter(&CounterRow { start_ns: 1, interval_ns: None, process: None, device: None, id, value: 700.0 });
    tables.gpu_sample(&GpuSample::default());
    let activity = gputrace_abi::activity::Activity::of(0, 2);
    tables.gpu_activity(&GpuActivity { start_ns: 1, process_id: 3, pid: 4, activity });
    tables.host(&HostCall {
        action: HostAction::Unmap,
        start_ns: 1,
        api_ns: None,
        process_id: 3,
        pid: 4,
        tid: 5,
        api_id: 6,
        address: 7,
        bytes: 8,
        weight_bytes: 9.0,
        stack_id: None,
        age_ns: Some(10),
        calls: 1,
    });
}

fn dispatch(kind: DispatchKind, size: [u32; 3], group: [u32; 3]) -> Dispatch {
    Dispatch {
        start_ns: 1,
        api_ns: 2,
        process_id: 3,
        pid: 4,
        tid: 5,
        api_id: 6,
        device: None,
        name_id: None,
        encoder_id: None,
        kind,
        size,
        group,
        discarded: false,
    }
}

fn communicator() -> Communicator {
    Communicator {
        start_ns: 1,
        process_id: 3,
        pid: 4,
        tid: 5,
        number: 1,
        unique_id: None,
        rank: None,
        ranks: None,
        parent: None,
        device: None,
        api_id: 6,
        handle: 7,
        library: String::new(),
        version: 0,
    }
}

#[test]
fn every_table_has_the_columns_of_its_schema() {
    let mut tables = Tables::new();
    tables.sum_up(Some(Rollups::new(Duration::from_secs(1))));
    fill(&mut tables);
    tables.settle_rollups(0, true);
    let mut batches: Vec<(TableId, RecordBatch)> = Vec::new();
    for message in tables.take(1) {
        if let Message::Rows(table, batch, shares) = message {
            let counted = !matches!(
                table,
                TableId::Names
                    | TableId::Stacks
                    | TableId::Communicators
                    | TableId::Graphs
                    | TableId::GraphKernels
                    | TableId::Kernels
                    | TableId::DeviceCopies
                    | TableId::GpuWindows
                    | TableId::Counters
                    | TableId::GpuSamples
                    | TableId::GpuActivity
                    | TableId::Rollups
                    | TableId::RollupNames
            );
            assert_eq!(shares.iter().map(|s| s.rows).sum::<u64>(), u64::from(counted));
            batches.push((table, batch));
        }
    }
    batches.push((TableId::Processes, processes(&[ProcessRow::default()]).unwrap()));
    batches.push((TableId::Threads, threads(&[ThreadRow::default()]).unwrap()));
    // What PyTorch's allocator did, and what other profilers told, comes from no ring.
    batches.push((TableId::TorchMemory, Columns::new(TableId::TorchMemory, 1).batch().unwrap()));
    batches.push((TableId::ProfilerEvents, Columns::new(TableId::ProfilerEvents, 1).batch().unwrap()));
    assert_eq!(batches.len(), TABLES.len());
    for (table, batch) in batches {
        let (wanted, schema) = (table.table().columns, batch.schema());
        assert_eq!(schema.fields().len(), wanted.len());
        for (field, column) in schema.fields().iter().zip(wanted) {
            assert_eq!(field.name(), column.name);
            let coded =
                column.kind == Type::Text && matches!(field.data_type(), arrow::datatypes::DataType::Dictionary(..));
            assert!(coded || *field.data_type() == column.kind.arrow(), "{field}");
        }
    }
}

#[test]
fn directions_follow_from_the_two_ends() {
    let copy = Transfer {
        set: false,
        peer: false,
        src_kind: End::Pageable,
        dst_kind: End::Device,
        bytes: 0,
        dst: 0,
        src: 0,
        is_async: false,
    };
    let text = |t: Transfer| DIRECTIONS[usize::from(t.direction())];
    assert_eq!(text(copy), "HtoD");
    assert_eq!(text(Transfer { src_kind: End::Array, dst_kind: End::Pinned, ..copy }), "AtoH");
    assert_eq!(text(Transfer { src_kind: End::Managed, dst_kind: End::Array, ..copy }), "DtoA");
    assert_eq!(text(Transfer { src_kind: End::Unknown, ..copy }), "unknown");
    assert_eq!(text(Transfer { peer: true, ..copy }), "PtoP");
    assert_eq!(text(Transfer { set: true, dst_kind: End::Pinned, ..copy }), "H");
}

#[test]
fn a_dispatch_has_a_grid_and_threads_whatever_its_size_counts() {
    let of = |kind, size, group| {
        let dispatch = dispatch(kind, size, group);
        (dispatch.grid(), dispatch.threads(), dispatch.kernels())
    };
    assert_eq!(of(DispatchKind::Threads, [100, 3, 1], [64, 2, 1]), ([2, 2, 1], Some(300), 1));
    assert_eq!(of(DispatchKind::Groups, [10, 2, 1], [64, 2, 1]), ([10, 2, 1], Some(2560), 1));
    assert_eq!(of(DispatchKind::Indirect, [0; 3], [64, 2, 1]), ([0; 3], None, 1));
    assert_eq!(of(DispatchKind::Commands, [7, 0, 0], [0; 3]), ([0; 3], None, 7));
    assert_eq!(of(DispatchKind::Groups, [u32::MAX; 3], [1024; 3]).1, None);
}
