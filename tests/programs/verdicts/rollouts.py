"""Rollouts between updates: a monitor keeps what every step of the environment gave; the buffer is emptied."""
import torch

net = torch.nn.Linear(32, 32).cuda()
optimizer = torch.optim.Adam(net.parameters())
monitor = []


def step():
    observation = torch.randn(64, 32, device="cuda")  # observation
    monitor.append({"observation": observation})
    return observation


def main():
    buffer, observation = [], step()
    for rollout in range(8):
        with torch.no_grad():
            for _ in range(16):
                net(observation)
                buffer.append(observation)
                observation = step()
        for _ in range(8):
            loss = net(torch.cat(buffer)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        buffer.clear()


main()
