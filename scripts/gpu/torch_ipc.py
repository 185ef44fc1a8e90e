"""A tensor lent to another process and given back, every step."""
import torch
import torch.multiprocessing as processes


def borrower(todo, done):
    while (tensor := todo.get()) is not None:
        done.put(float(tensor.sum()))
        del tensor


if __name__ == "__main__":
    context = processes.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    child = context.Process(target=borrower, args=(todo, done))
    child.start()
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(40):
        optimizer.zero_grad()
        model(torch.randn(8, 64, device="cuda")).mean().backward()
        optimizer.step()
        lent = torch.ones(1 << 18, device="cuda")
        todo.put(lent)
        done.get()
        del lent
        torch.cuda.ipc_collect()
    todo.put(None)
    child.join()
    print("ALLOCATED", torch.cuda.memory_allocated())
