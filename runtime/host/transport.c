/* transport.c: the checks before a transport's functions. Cost: linear in a group's wires. */
#include "runtime/host/transport.h"

fcp_code fcp_net_open(const fcp_transport *transport, uint32_t ranks, fcp_net **out_net, fcp_error *err) {
    if (!transport || !out_net || ranks == 0) return fcp_fail(err, FCP_E_ARGUMENT, "a net needs a transport and ranks");
    return transport->open(ranks, out_net, err);
}

void fcp_net_close(fcp_net *net) {
    if (net) net->transport->close(net);
}

void fcp_net_reset(fcp_net *net) { net->transport->reset(net); }

fcp_code fcp_net_launch(fcp_net *net, uint32_t rank, uint32_t pass, uint32_t round, const fcp_wire *wires,
                        uint32_t count, fcp_error *err) {
    if (rank >= net->ranks) return fcp_fail(err, FCP_E_ARGUMENT, "rank %u of %u", rank, net->ranks);
    for (uint32_t i = 0; i < count; i++) {
        const fcp_wire *w = &wires[i];
        if (w->peer >= net->ranks || w->peer == rank || w->dir > FCP_RECV || w->fabric >= FCP_FABRICS ||
            w->segments > FCP_SEGMENTS)
            return fcp_fail(err, FCP_E_ARGUMENT, "rank %u, round %u: wire %u to rank %u is malformed", rank, round, i,
                            w->peer);
    }
    return net->transport->launch(net, rank, pass, round, wires, count, err);
}

fcp_wait fcp_net_wait(fcp_net *net, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err) {
    uint32_t ignored;
    if (rank >= net->ranks) {
        fcp_fail(err, FCP_E_ARGUMENT, "rank %u of %u", rank, net->ranks);
        return FCP_WAIT_FAILED;
    }
    return net->transport->wait(net, rank, milliseconds, out_wire ? out_wire : &ignored, err);
}

void fcp_net_abort(fcp_net *net) { net->transport->abort(net); }
